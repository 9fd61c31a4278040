package coldparquet;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The tables below one URL, by their directories: {@code spark.sql.catalog.cold=coldparquet.Catalog} and
 * {@code spark.sql.catalog.cold.url=s3://bucket} make {@code cold.db.trades} of {@code s3://bucket/db/trades}. All other
 * settings below that name are options of every table. Nothing is kept: each name is looked up in the store.
 */
public final class Catalog implements StagingTableCatalog, SupportsNamespaces {
    private static final Map<String, String> INTERVALS = Map.of("hours", "HOUR", "days", "DAY", "months", "MONTH", "years", "YEAR");
    /** Properties that Spark sets itself, and that are no options. */
    private static final Set<String> OF_SPARK = Set.of(
        TableCatalog.PROP_PROVIDER, TableCatalog.PROP_OWNER, TableCatalog.PROP_COMMENT, TableCatalog.PROP_TABLE_TYPE);

    private static final Pattern NO_NAME = Pattern.compile("[*?\\[\\]{},/\\\\]");

    private String name;
    private String root;
    private Map<String, String> options;

    @Override
    public void initialize(String name, CaseInsensitiveStringMap settings) {
        this.name = name;
        root = settings.get("url");
        options = new HashMap<>(settings.asCaseSensitiveMap());
        options.keySet().removeIf("url"::equalsIgnoreCase);
        if (root == null || root.isBlank()) {
            throw new IllegalArgumentException("the catalog " + name + " has no root: set spark.sql.catalog." + name
                + ".url to the directory of databases, as s3://bucket/lake");
        }
        root = root.replaceAll("/+$", "");
    }

    @Override
    public String name() {
        return name;
    }

    private CaseInsensitiveStringMap optionsOf(String[] namespace, String table) {
        List<String> parts = new ArrayList<>(List.of(namespace));
        if (table != null) parts.add(table);
        for (String part : parts) {
            // The option path takes lists and patterns.
            if (part.isEmpty() || part.equals(".") || part.equals("..") || NO_NAME.matcher(part).find()) {
                throw new IllegalArgumentException("'" + part + "' is no name of a directory that the catalog " + name
                    + " of coldparquet reads: it must not hold / * ? [ ] { } or a comma");
            }
        }
        Map<String, String> all = new HashMap<>(options);
        all.put("path", root + (parts.isEmpty() ? "" : "/" + String.join("/", parts)));
        all.put(DefaultSource.CATALOG, "true");
        return new CaseInsensitiveStringMap(all);
    }

    @Override
    public Table loadTable(Identifier table) throws NoSuchTableException {
        CaseInsensitiveStringMap own = optionsOf(table.namespace(), table.name());
        try {
            return new ColdTable(name(table), DefaultSource.described(own, DefaultSource.COLUMNS), own);
        } catch (Exception error) { // AnalysisException is one that Scala need not declare
            String message = String.valueOf(error.getMessage());
            boolean isNotThere = message.contains("[NotFound]") || message.contains("[NoPartitions]");
            if (isNotThere && message.contains("coldparquet.errors.NotFoundError")) throw new NoSuchTableException(table);
            throw error;
        }
    }

    @Override
    public Table loadTable(Identifier table, String version) {
        throw noEarlierState(table, "VERSION AS OF " + version);
    }

    @Override
    public Table loadTable(Identifier table, long timestamp) {
        throw noEarlierState(table, "TIMESTAMP AS OF");
    }

    /** An earlier transaction's files may be gone, and nothing says which. */
    private UnsupportedOperationException noEarlierState(Identifier table, String asked) {
        return refused("reads the newest state of a table, so there is no " + asked + " of " + name(table)
            + ": leave it out; a table keeps no earlier states. To keep one, copy the table: coldparquet publish, or"
            + " CREATE TABLE ... AS SELECT * FROM " + name(table));
    }

    private String name(Identifier table) {
        return name + "." + String.join(".", table.namespace()) + "." + table.name();
    }

    /** All tables below a namespace, as paths. */
    private List<String[]> below(String[] namespace) {
        List<String[]> found = new ArrayList<>();
        StructType all = DefaultSource.described(optionsOf(namespace, null), DefaultSource.TABLES);
        for (String path : all.fieldNames()) found.add(path.split("/"));
        return found;
    }

    @Override
    public Identifier[] listTables(String[] namespace) {
        return below(namespace).stream()
            .filter(path -> path.length == 1)
            .map(path -> Identifier.of(namespace, path[0]))
            .toArray(Identifier[]::new);
    }

    @Override
    public String[][] listNamespaces() {
        return listNamespaces(new String[0]);
    }

    @Override
    public String[][] listNamespaces(String[] namespace) {
        Set<String> found = new LinkedHashSet<>();
        for (String[] path : below(namespace)) if (path.length > 1) found.add(path[0]);
        return found.stream()
            .map(last -> {
                List<String> whole = new ArrayList<>(List.of(namespace));
                whole.add(last);
                return whole.toArray(String[]::new);
            })
            .toArray(String[][]::new);
    }

    @Override
    public Map<String, String> loadNamespaceMetadata(String[] namespace) {
        return Map.of(); // any directory is one
    }

    @Override
    public StagedTable stageCreate(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
        Map<String, String> own = new HashMap<>(optionsOf(table.namespace(), table.name()).asCaseSensitiveMap());
        properties.forEach((key, value) -> {
            if (!OF_SPARK.contains(key) && !key.startsWith(TableCatalog.OPTION_PREFIX)) own.put(key.toLowerCase(Locale.ROOT), value);
        });
        own.put("if_exists", "error");
        if (partitions.length > 0) {
            String interval = partitions.length == 1 ? INTERVALS.get(partitions[0].name()) : null;
            String[] column = interval == null ? new String[0] : partitions[0].references()[0].fieldNames();
            if (column.length != 1) {
                throw refused("partitions by time: PARTITIONED BY (days(ts)), or hours, months, years of one column");
            }
            own.put("timestamp", column[0]);
            own.put("partition_by", interval);
        }
        StructType schema = CatalogV2Util.v2ColumnsToStructType(columns);
        return new ColdTable.Staged(name(table), schema, new CaseInsensitiveStringMap(own));
    }

    @Override
    public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
        throw refused("begins a table with its first rows: CREATE TABLE " + name(table)
            + " PARTITIONED BY (days(ts)) AS SELECT ...");
    }

    @Override
    public StagedTable stageReplace(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
        throw refused("replaces no tables; SET spark.sql.sources.partitionOverwriteMode=dynamic and INSERT OVERWRITE replace"
            + " the partitions of the new rows");
    }

    @Override
    public StagedTable stageCreateOrReplace(
        Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
        return stageReplace(table, columns, partitions, properties);
    }

    @Override
    public Table alterTable(Identifier table, TableChange... changes) {
        throw refused("changes no tables");
    }

    @Override
    public boolean dropTable(Identifier table) {
        throw refused("deletes no tables; delete the directory " + optionsOf(table.namespace(), table.name()).get("path"));
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw refused("renames no tables");
    }

    @Override
    public void createNamespace(String[] namespace, Map<String, String> metadata) {
        throw refused("makes no namespaces: each is a directory, which is there as soon as a table is in it");
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw refused("changes no namespaces");
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        throw refused("deletes no namespaces");
    }

    private UnsupportedOperationException refused(String what) {
        return new UnsupportedOperationException("the catalog " + name + " of coldparquet " + what);
    }
}
