package coldparquet;

import java.math.BigDecimal;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.connector.expressions.Cast;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Writes Spark's filters down for coldparquet/spark/filters.py, which gives them their meaning, and tells which of them
 * Spark need not apply again. Python refuses the scan if it does not know one of these, so no row can be wrong.
 */
final class Filters {
    private static final Set<String> COMPARISONS = Set.of("=", "<>", "<=>", "<", "<=", ">", ">=");
    private static final Map<String, String> SWAPPED = Map.of("<", ">", "<=", ">=", ">", "<", ">=", "<=");
    private static final int DEEPEST = 30;
    private static final String MEANING = "coldparquet.meaning";
    private static final String TIMESTAMP = "coldparquet.timestamp";
    /** The years 1 to 9999, which Python's datetime holds, without their first and last day. */
    private static final long FIRST_MICROS = micros("0001-01-02T00:00:00Z"), LAST_MICROS = micros("9999-12-30T00:00:00Z");

    private final Map<String, StructField> columns = new HashMap<>();

    Filters(StructType described) {
        for (StructField field : described.fields()) columns.put(field.name(), field);
    }

    /** A filter as JSON has it: operator and parts, or operator, column and values; null where there is no such form. */
    Map<String, Object> tree(Expression filter) {
        return tree(filter, 0);
    }

    private Map<String, Object> tree(Expression filter, int depth) {
        if (!(filter instanceof Predicate) || depth > DEEPEST) return null;
        String name = ((Predicate) filter).name();
        Expression[] parts = filter.children();
        if (name.equals("AND") || name.equals("OR") || name.equals("NOT")) {
            List<Object> trees = new ArrayList<>();
            for (Expression part : name.equals("NOT") ? List.of(parts) : operands(filter, name)) {
                Map<String, Object> tree = tree(part, depth + 1);
                if (tree == null) return null;
                trees.add(tree);
            }
            return Map.of("operator", name, "parts", trees);
        }
        if (parts.length == 2 && COMPARISONS.contains(name) && column(parts[0]) == null && column(parts[1]) != null) {
            name = SWAPPED.getOrDefault(name, name);
            parts = new Expression[] {parts[1], parts[0]};
        }
        boolean isLeaf = switch (name) {
            case "IS_NULL", "IS_NOT_NULL" -> parts.length == 1;
            case "IN" -> parts.length > 1;
            case "STARTS_WITH" -> parts.length == 2;
            default -> parts.length == 2 && COMPARISONS.contains(name);
        };
        String column = parts.length == 0 ? null : column(parts[0]);
        if (!isLeaf || column == null || !columns.containsKey(column)) return null;
        List<Object> values = new ArrayList<>();
        for (int i = 1; i < parts.length; i++) {
            Object value = value(parts[i], parts[0]);
            if (value == null) return null;
            values.add(value);
        }
        return Map.of("operator", name, "column", column, "values", values);
    }

    /** All that a chain of ANDs, or of ORs, combines: Spark has two of each, and a thousand of them nest too deep for Python. */
    private static List<Expression> operands(Expression chain, String name) {
        List<Expression> found = new ArrayList<>();
        Deque<Expression> left = new ArrayDeque<>(List.of(chain));
        while (!left.isEmpty()) {
            Expression next = left.pop();
            if (next instanceof Predicate && ((Predicate) next).name().equals(name)) {
                for (int i = next.children().length - 1; i >= 0; i--) left.push(next.children()[i]);
            } else {
                found.add(next);
            }
        }
        return found;
    }

    /** Whether a filter that has a tree keeps the same rows here as in Spark. */
    boolean isExact(Expression filter) {
        String name = ((Predicate) filter).name();
        Expression[] parts = filter.children();
        if (name.equals("AND") || name.equals("OR") || name.equals("NOT")) {
            for (Expression part : parts) if (!isExact(part)) return false;
            return true;
        }
        Expression reference = column(parts[0]) != null ? parts[0] : parts[1];
        boolean hasOrder = COMPARISONS.contains(name) && !Set.of("=", "<>", "<=>").contains(name);
        for (Expression part : parts) {
            if (part instanceof Literal) {
                Object value = ((Literal<?>) part).value();
                if (value instanceof Number && !Double.isFinite(((Number) value).doubleValue())) return false;
            }
        }
        DataType type = columns.get(column(reference)).dataType();
        return switch (meaning(column(reference))) {
            case "same" -> isOrdered(type) || type instanceof BooleanType && !hasOrder;
            case "text", "floating", "cut" -> true;
            default -> false;
        };
    }

    /** Whether all columns of a filter are the designated timestamp. */
    boolean isOfTimestampAlone(Expression filter) {
        for (NamedReference reference : filter.references()) {
            String column = column(reference);
            if (column == null || !metadata(column).contains(TIMESTAMP)) return false;
        }
        return true;
    }

    /** What a tree compares the designated timestamp with, in microseconds; null for every other tree. */
    Long microsOfTimestamp(Map<?, ?> tree) {
        if (!(tree.get("column") instanceof String column) || !metadata(column).contains(TIMESTAMP)) return null;
        List<?> values = (List<?>) tree.get("values");
        if (values.size() != 1 || !(values.get(0) instanceof Map<?, ?> value)) return null;
        Object micros = value.containsKey("timestamp") ? value.get("timestamp") : value.get("timestamp_ntz");
        return micros instanceof Long found ? found : null;
    }

    /** Whether metadata counts the nulls of a column as Spark does. */
    boolean knowsNulls(String column) {
        return Set.of("same", "text", "cut", "floating").contains(meaning(column))
            && !(columns.get(column).dataType() instanceof StructType);
    }

    /** Whether the least and the greatest value are those of Spark, which metadata knows: no text, no NaN. */
    boolean hasExtremes(String column) {
        return Set.of("same", "cut").contains(meaning(column)) && isOrdered(columns.get(column).dataType());
    }

    /** The columns of a schema whose values metadata may rule out. */
    NamedReference[] comparable(StructType schema) {
        List<NamedReference> found = new ArrayList<>();
        for (String name : schema.fieldNames()) {
            if (hasExtremes(name) || meaning(name).equals("text")) {
                found.add(Expressions.column("`" + name.replace("`", "``") + "`"));
            }
        }
        return found.toArray(new NamedReference[0]);
    }

    private static boolean isOrdered(DataType type) {
        return type instanceof LongType || type instanceof IntegerType || type instanceof ShortType || type instanceof ByteType
            || type instanceof TimestampType || type instanceof TimestampNTZType || type instanceof DateType;
    }

    private Metadata metadata(String column) {
        return columns.containsKey(column) ? columns.get(column).metadata() : Metadata.empty();
    }

    /** How the values of a column compare, by its metadata; unknown where the caller has given the schema. */
    private String meaning(String column) {
        return metadata(column).contains(MEANING) ? metadata(column).getString(MEANING) : "unknown";
    }

    /** The name of a column, also below a cast that changes nothing; null for other expressions. */
    static String column(Expression expression) {
        if (expression instanceof Cast && isZoneAdded((Cast) expression)) return column(((Cast) expression).expression());
        if (!(expression instanceof NamedReference)) return null;
        String[] path = ((NamedReference) expression).fieldNames();
        return path.length == 1 ? path[0] : null;
    }

    /** A timestamp without zone, compared with one that has: in a zone of one offset that is the same order. */
    private static boolean isZoneAdded(Cast cast) {
        return cast.expressionDataType() instanceof TimestampNTZType && cast.dataType() instanceof TimestampType
            && zone().getRules().isFixedOffset();
    }

    private static ZoneId zone() {
        return DateTimeUtils.getZoneId(SQLConf.get().sessionLocalTimeZone());
    }

    /** Type and value of a literal, which is compared with a column; null for null, and for what JSON or Python cannot hold. */
    private static Object value(Expression expression, Expression reference) {
        if (!(expression instanceof Literal) || ((Literal<?>) expression).value() == null) return null;
        Object value = ((Literal<?>) expression).value();
        DataType type = ((Literal<?>) expression).dataType();
        if (type instanceof TimestampType && reference instanceof Cast) {
            long offset = zone().getRules().getOffset(Instant.EPOCH).getTotalSeconds();
            return timestamp("timestamp_ntz", (Long) value + offset * 1_000_000L);
        }
        if (type instanceof TimestampType) return timestamp("timestamp", (Long) value);
        if (type instanceof TimestampNTZType) return timestamp("timestamp_ntz", (Long) value);
        if (type instanceof DateType) {
            long micros = ((Integer) value).longValue() * 86_400_000_000L;
            return micros < FIRST_MICROS || micros > LAST_MICROS ? null : Map.of("date", value);
        }
        // As text: JSON has neither NaN nor infinity, and no float that is not a double.
        if (type instanceof DoubleType || type instanceof FloatType)
            return Map.of("double", Double.toString(((Number) value).doubleValue()));
        if (type instanceof DecimalType) return Map.of("decimal", new BigDecimal(value.toString()).toPlainString());
        if (type instanceof StringType) return Map.of("string", value.toString());
        return type instanceof BooleanType || isOrdered(type) ? Map.of("plain", value) : null;
    }

    private static Object timestamp(String type, long micros) {
        return micros < FIRST_MICROS || micros > LAST_MICROS ? null : Map.of(type, micros);
    }

    private static long micros(String instant) {
        return Duration.between(Instant.EPOCH, Instant.parse(instant)).toSeconds() * 1_000_000L;
    }
}
