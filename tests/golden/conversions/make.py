"""Asks a QuestDB server what ALTER COLUMN TYPE makes of values, one JSON file per source type.

    python make.py --jar questdb-9.3.4.jar --work /some/empty/dir --out .

Needs: Java 17+ and the Maven artifact org.questdb:questdb:9.3.4 (one jar). Numbers are taken from the column files, so that
nothing hides in how the server prints them; text, which has no one encoding there, comes from SELECT.
"""
import argparse, json, math, os, pathlib, random, signal, subprocess, time, urllib.error, urllib.parse, urllib.request

import numpy as np

PORT = 19230
WIDTHS = {"BOOLEAN": "?", "BYTE": "<i1", "SHORT": "<i2", "CHAR": "<u2", "INT": "<i4", "LONG": "<i8", "DATE": "<i8",
          "TIMESTAMP": "<i8", "TIMESTAMP_NS": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8", "IPv4": "<u4", "UUID": "V16"}
TEXT = ("STRING", "SYMBOL", "VARCHAR")
DECIMALS = ("DECIMAL(2,1)", "DECIMAL(4,2)", "DECIMAL(9,3)", "DECIMAL(18,3)", "DECIMAL(18,0)", "DECIMAL(38,5)", "DECIMAL(76,10)")
TYPES = (*WIDTHS, *TEXT, *DECIMALS)
LEAST = {"INT": -(2**31), **{name: -(2**63) for name in ("LONG", "DATE", "TIMESTAMP", "TIMESTAMP_NS")}}
random.seed(4)


def around(*edges):
    return sorted({edge + step for edge in edges for step in (-1, 0, 1)})


SMALL = [0, 1, -1, 7, 42, -100, 127, 128, -128, -129]
INTS = [*SMALL, 255, 256, 300, *around(2**15, -(2**15), 2**16), 99_999, 1_000_000, *around(2**24), *around(2**31 - 2, -(2**31) + 2)]
LONGS = [*INTS, *around(2**31, -(2**31), 2**32, 2**53, -(2**53)), 10**9, 123_456_789_012, *around(2**63 - 2, -(2**63) + 2),
         (2**63 - 1) // 1000, (2**63 - 1) // 1000 + 1, -((2**63) // 1000), -((2**63) // 1000) - 1, (2**63 - 1) // 10**6, (2**63 - 1) // 10**6 + 1]
INSTANTS_MS = [0, 1, -1, 999, 1000, -1000, 1_709_251_199_999, 1_709_251_200_000, 253_402_300_799_999, 253_402_300_800_000,
               -62_135_596_800_000, -62_167_219_200_000, -62_167_219_200_001, 4_102_444_800_123, -2_208_988_800_000, -86_400_000]
FLOATS = [0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 0.2, 0.3, 1 / 3, 100.0, 123.456, 1e-3, 9.999e-4, 1e-5, 1e-7, 1234567.0, 12345678.0, 9999999.0, 1e7, 1.0e10,
          1e15, 1e16, 1e17, 1e18, 1e20, 1e21, 1e22, 1e30, 3.4e38, 127.0, 127.9, 128.0, -128.9, -129.0, 255.5, 32767.9, 32768.0, -32769.0, 65535.0, 65536.0,
          2.0**24, 2.0**24 + 2, 2.0**31 - 128, 2.0**31, -(2.0**31), -(2.0**31) - 256, 2.0**32, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 1e19, -1e19]
FLOATS += [float(np.float32(10 ** random.uniform(-37, 38))) for _ in range(40)] + [float(np.float32(2 ** random.uniform(24, 63))) for _ in range(40)]
DOUBLES = [*FLOATS, 1e-10, 1e100, 1e300, -1e300, 5e-324, 1.7976931348623157e308, 2.2250738585072014e-308, 1e23, 9.007199254740993e15, 0.1 + 0.2, 2.0**31 - 1, 2.0**31 - 0.5,
           -(2.0**31) - 0.5, 2.0**31 - 0.25, 123456789.123456789, 4.35, 1.1, 2.2, 3.3, 100.01, 9.223372036854775e18, 3.5e38, 3.4028235677973366e38, 1e-46, 1e-40, 16777217.0]
DOUBLES += [random.uniform(-1, 1) * 10 ** random.randint(-300, 300) for _ in range(40)] + [round(random.uniform(0, 10**6), random.randint(0, 8)) for _ in range(40)]
TEXTS = """0|1|-1|+1|7|42|127|128|-128|-129|255|256|300|32767|32768|-32769|65535|65536|99999|2147483647|2147483648|-2147483648|-2147483649|9223372036854775807
9223372036854775808|-9223372036854775808|-9223372036854775807|00|007|-0|-007|1 | 1|1_000|1_0|_1|1_|1,000|1.0|1.5|-1.5|.5|5.|.|-.5|1e3|1E3|1e+3|1e-3|1e|e3|1e400|-1e400|1e-400|0x10|0xff|10L|10l|1f|1F|1d|1D|1.5f|1.5d|1K|5m
NaN|nan|NAN|Infinity|-Infinity|+Infinity|infinity|inf|-inf|null|NULL|true|TRUE|True|tRuE|t|T|yes|false|FALSE|f| true|true |on
a|b|abc|é|ée|中|中文|\U0001f600|\U0001f600x|\t|x y|'|#|-|+|--1|+-1|١|1é|é1|0.1|0.30000000000000004|123456789012345678|1234567890123456789012|3.4028235e38|3.5e38|-3.5e38|1.17549435e-38|1e-45|1e-46|4.9e-324|2e-324|16777217|9007199254740993
2024-02-29|2024-02-30|2023-02-29|2024-13-01|2024-00-10|2024-1-2|2024|2024-02|0001-01-01|9999-12-31|10000-01-01|1969-12-31|-2024-01-01|2024-02-29T|2024-02-29T1|2024-02-29T12|2024-02-29T12:3|2024-02-29T12:30|2024-02-29T12:30:4|2024-02-29T12:30:45
2024-02-29T12:30:45Z|2024-02-29T12:30:45.1|2024-02-29T12:30:45.1Z|2024-02-29T12:30:45.12Z|2024-02-29T12:30:45.123|2024-02-29T12:30:45.123Z|2024-02-29T12:30:45.1234Z|2024-02-29T12:30:45.123456|2024-02-29T12:30:45.123456Z
2024-02-29T12:30:45.1234567Z|2024-02-29T12:30:45.123456789Z|2024-02-29T12:30:45.123456789|2024-02-29T12:30:45.1234567891Z|2024-02-29 12:30:45|2024-02-29 12:30:45.123|2024-02-29 12:30:45.123456|2024-02-29 12:30:45.123456789Z|2024-02-29t12:30:45z
2024-02-29T24:00:00Z|2024-02-29T23:60:00Z|2024-02-29T23:59:60Z|2024-02-29T23:59:59.999999Z|2024-02-29T12:30:45+01:00|2024-02-29T12:30:45.123456+01:00|2024-02-29T12:30:45-0500|2024-02-29T12:30:45.123+01|2024-02-29T12:30Z|2024-02-29Z|20240229
1969-12-31T23:59:59.999Z|1969-12-31T23:59:59.999999Z|1969-12-31T23:59:59.999999999Z|9999-12-31T23:59:59.999999Z|2262-04-11T23:47:16.854775807Z|2262-04-12T00:00:00.000000Z|1677-09-21T00:12:43.145224193Z|1677-09-20T00:00:00.000Z| 2024-02-29|2024-02-29 |2024/02/29|29.02.2024|12:30:45
1709209845|1709209845123|1709209845123456|1709209845123456789|-1709209845123456
11111111-2222-3333-4444-555555555555|AAAAAAAA-BBBB-cccc-DDDD-eeeeeeeeeeee|11111111222233334444555555555555|{11111111-2222-3333-4444-555555555555}|g1111111-2222-3333-4444-555555555555|11111111-2222-3333-4444-55555555555|11111111-2222-3333-4444-5555555555555|00000000-0000-0000-0000-000000000000|80000000-0000-0000-8000-000000000000|1111111-12222-3333-4444-555555555555| 11111111-2222-3333-4444-555555555555|11111111-2222-3333-4444-555555555555
0.0.0.0|1.2.3.4|127.0.0.1|255.255.255.255|256.1.1.1|1.2.3|1.2.3.4.5|01.2.3.4|001.002.003.004|1.2.3.04|1..3.4|1.2.3.|.1.2.3|1.2.3.4 | 1.2.3.4|1.2.3.4/24|a.b.c.d|-1.2.3.4|0000.0.0.1|1.2.3.256|300.300.300.300|192.168.1.1""".replace("\n", "|").split("|")
TEXTS += """1__0|-_1|+1_000|1_L|1LL|L|12l|+0|0000000000000000000000001|-00001|1_2_3|1_2L|99999999999999999999L|2147483648_|1-|- 5|+-5|0x1p3|NaN |1e5d|1e5f| 1 |1 2|1 d|+.|e5|.e5|1e+|1e-|1E05|1e00005|INF|Infinityd|0e999|0e-999
1e309|1e308|1.7976931348623158e308|1.7976931348623159e308|2.4e-324|2.5e-324|1e-323|-0.0|-0e5|00.1|1..2|1,5|1d |1dd|0.0000000000000000000000000000000000000000000001|3.4028236e38|3.40282356e38|0.70065e-45|0.7e-45|1e99999|0e99999|1e-99999|.1.2.3.4|1.2.3.+4|1.2.3._4|1.2.3.4_|1.2.3.4.|1.2.3.00004|1.1_0.3.4
2024-02-29T12:30:45+14:00|2024-02-29T12:30:45+23:59|2024-02-29T12:30:45+24:00|2024-02-29T12:30:45-2359|2024-02-29T12:30:45.|2024-02-29T12:30:45.Z|2024-02-29T12:30:45+1|2024-02-29T12:30:45 |2024-02-29T12:30+01:00|2024-02-29T12Z|2024-02-29_12:30:45|2024-02-29T12:30:45ZZ|2024-+2-29|2024-|202|2024-02-29T12:30:45.5z
2024-02-29T12:30:45.123456789+01:00|2024-02-29T12:30:45Z+01:00|2024-02-29T12:30:45+010|1900-02-28|1900-02-29|2000-02-29|1678-01-01|1677-12-31|2261-12-31T23:59:59.999999999Z|2262-01-01|0000-01-01|2100-02-29T00:00:00|1970-01-01T00:00:00.000000001Z""".replace("\n", "|").split("|")
TEXTS = list(dict.fromkeys(["", "\t1", "1\n", "\u00a01", *TEXTS, "x" * 40, "é" * 20]))
CHARS = ["a", "0", "9", " ", "é", "中", "'", "T"]


def decimal_values(name):
    precision, scale = map(int, name[8:-1].split(","))
    largest = 10**precision - 1
    unscaled = [0, 1, -1, 5, -5, 9, 10, 15, 25, 99, -99, 100, 12345, -12345, 99999, largest, -largest, largest // 2, 10**scale, -(10**scale), 10**scale * 5 // 2, 127 * 10**scale, 128 * 10**scale,
                32768 * 10**scale, 2**31 * 10**scale, 2**63 * 10**scale]
    return [str(value)[: len(str(value))] if scale == 0 else point(value, scale) for value in dict.fromkeys(unscaled) if abs(value) <= largest]


def point(unscaled, scale):
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return ("-" if unscaled < 0 else "") + digits[:-scale] + "." + digits[-scale:]


def literals(name):
    """SQL expressions for the values of a type; null comes twice in a row."""
    def cast(values, kind=name):
        return [f"cast({value!r} as {kind})" if isinstance(value, (int, float)) else f"cast('{value}' as {kind})" for value in values]
    def longs(values):
        return [f"cast({'' if value >= 0 else '-'}{abs(value)}L as {name})" for value in values if value not in (LEAST.get(name), -(2**63)) and abs(value) < 2**63]
    null = [f"cast(null as {name})"]
    match name:
        case "BOOLEAN":
            return ["true", "false"]
        case "BYTE":
            return [f"cast({value} as byte)" for value in SMALL if -128 <= value <= 127]
        case "SHORT":
            return [f"cast({value} as short)" for value in INTS if -(2**15) <= value < 2**15]
        case "CHAR":
            return null + [f"cast('{value.replace(chr(39), chr(39) * 2)}' as char)" for value in CHARS]
        case "INT":
            return null + longs([value for value in INTS if -(2**31) <= value < 2**31])
        case "LONG":
            return null + longs([value for value in LONGS if -(2**63) <= value < 2**63] + [random.getrandbits(62) for _ in range(10)])
        case "DATE":
            return null + longs(INSTANTS_MS + INTS + LONGS)
        case "TIMESTAMP":
            return null + longs([v * 1000 for v in INSTANTS_MS] + [v * 1000 + 1 for v in INSTANTS_MS] + [v * 1000 - 999 for v in INSTANTS_MS] + LONGS)
        case "TIMESTAMP_NS":
            instants = [v * 10**6 + extra for v in INSTANTS_MS for extra in (0, 1, 1000, -1, 123_456) if abs(v) < 9 * 10**12]
            return null + longs(instants + LONGS)
        case "FLOAT":
            return null + [f"cast({value!r} as float)" for value in FLOATS] + ["cast('Infinity' as float)", "cast('-Infinity' as float)", "cast(-0.0 as float)"]
        case "DOUBLE":
            return null + [f"cast('{value!r}' as double)" for value in DOUBLES] + ["cast('Infinity' as double)", "cast('-Infinity' as double)", "cast('-0.0' as double)"]
        case "UUID":
            return null + cast(["11111111-2222-3333-4444-555555555555", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "80000000-0000-0000-0000-000000000001"])
        case "IPv4":
            return null + cast(["1.2.3.4", "127.0.0.1", "255.255.255.255", "10.0.0.255", "192.168.100.1", "0.0.0.1"])
        case "STRING" | "SYMBOL" | "VARCHAR":
            return null + ["'" + text.replace("'", "''") + "'" for text in TEXTS]
        case _:
            return null + [f"cast('{value}' as {name})" for value in decimal_values(name)]


FAILS = {"fails": True}


class Refused(Exception):
    pass


def ask(sql):
    url = f"http://127.0.0.1:{PORT}/exec?" + urllib.parse.urlencode({"query": sql})
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        raise Refused(json.loads(error.read()).get("error")) from None


def number(value):
    """A number that JSON keeps: integers as they are, floats as text that float() takes back exactly."""
    if isinstance(value, float):
        return value.hex() if math.isfinite(value) else repr(value)
    return value


def column(work, name, count):
    """The values of column x: raw numbers from its file, text from the server. Null is what the type takes for it."""
    if name in TEXT or name.startswith("DECIMAL"):
        return [row[0] for row in ask("select x from p")["dataset"]]
    table = work / "root" / "db" / "p" / "default"
    file = max(table.glob("x.d*"), key=lambda path: int(path.name.partition(".d.")[2] or -1))
    raw = file.read_bytes()[: count * np.dtype(WIDTHS[name]).itemsize]
    if name == "UUID":
        halves = np.frombuffer(raw, "<u8").reshape(-1, 2)
        return [None if lo == hi == 2**63 else f"{int(hi) << 64 | int(lo):032x}" for lo, hi in halves]
    values = np.frombuffer(raw, WIDTHS[name]).tolist()
    if name == "IPv4":
        return [value or None for value in values]
    if name == "FLOAT":
        values = [float(np.float32(value)) for value in values]
    return [None if value == LEAST.get(name) or value != value else number(value) for value in values]


def fill(source, expressions):
    ask("drop table if exists p")
    ask(f"create table p (x {source})")
    for start in range(0, len(expressions), 20):
        ask("insert into p values " + ", ".join(f"({expression})" for expression in expressions[start : start + 20]))


def one_value(work, source, expression):
    fill(source, [expression])
    return column(work, source, 1)


def altered(work, source, target, expressions):
    fill(source, expressions)
    before = column(work, source, len(expressions))
    ask(f"alter table p alter column x type {target}")
    return before, column(work, target, len(expressions))


def answers(work, source):
    expressions = literals(source)
    values, found, refused = None, {}, []
    for target in TYPES:
        if target == source:
            continue
        try:
            before, found[target] = altered(work, source, target, expressions)
        except Refused as refusal:
            if "incompatible column type" in str(refusal):
                refused.append(target)
                continue
            # A value that does not fit makes the whole statement fail: ask for one value after the other.
            assert "column conversion failed" in str(refusal), refusal
            before, found[target] = [], []
            for expression in expressions:
                try:
                    one, other = altered(work, source, target, [expression])
                except Refused:
                    one, other = one_value(work, source, expression), [FAILS]
                before += one
                found[target] += other
        assert values in (None, before) and len(before) == len(found[target]) == len(expressions)
        values = before
    return {"build": ask("select build()")["dataset"][0][0].replace("Build Information: ", ""), "from": source, "values": values, "to": found, "refused": refused}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--jar", required=True), options.add_argument("--work", type=pathlib.Path, required=True)
    options.add_argument("--out", type=pathlib.Path, required=True)
    chosen = options.parse_args()
    (chosen.work / "root").mkdir(parents=True)
    env = {**os.environ, "QDB_HTTP_NET_BIND_TO": f"127.0.0.1:{PORT}", "QDB_HTTP_BIND_TO": f"127.0.0.1:{PORT}", "QDB_PG_ENABLED": "false", "QDB_HTTP_MIN_ENABLED": "false",
           "QDB_LINE_TCP_ENABLED": "false", "QDB_TELEMETRY_ENABLED": "false", "QDB_CAIRO_WRITER_DATA_APPEND_PAGE_SIZE": "65536"}
    command = ["java", "--add-opens", "java.base/java.lang=ALL-UNNAMED", "--add-opens", "java.base/java.nio=ALL-UNNAMED", "-p", chosen.jar, "-m", "io.questdb/io.questdb.ServerMain", "-d", str(chosen.work / "root")]
    with open(chosen.work / "server.log", "ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    try:
        for _ in range(240):
            try:
                ask("select 1")
                break
            except OSError:
                time.sleep(0.25)
        for source in TYPES:
            name = source.lower().translate({ord("("): "_", ord(","): "_", ord(")"): None})
            answer = answers(chosen.work, source)
            (chosen.out / f"{name}.json").write_text(json.dumps(answer, ensure_ascii=False, indent=None, separators=(",", ":")).replace('],"', '],\n"') + "\n")
            print(f"{source}: {len(answer['values'])} values, refused {answer['refused']}", flush=True)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)


if __name__ == "__main__":
    main()
