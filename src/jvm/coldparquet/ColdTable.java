package coldparquet;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table; of the metadata of its columns only {@link ColdScanBuilder} knows. */
class ColdTable implements SupportsRead, SupportsWrite {
    private final String name;
    private final StructType described;
    private final StructType schema;
    private final CaseInsensitiveStringMap own;

    /** Options of the table itself come from its catalog; without one, all options are those of a query. */
    ColdTable(String name, StructType described, CaseInsensitiveStringMap own) {
        this.name = name;
        this.described = described;
        this.own = own;
        StructType plain = new StructType();
        for (StructField field : described.fields()) {
            plain = plain.add(new StructField(field.name(), field.dataType(), field.nullable(), Metadata.empty()));
        }
        schema = plain;
    }

    @Override
    public String name() {
        return name;
    }

    @Override
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        Set<TableCapability> found = new HashSet<>(DefaultSource.python(schema).capabilities());
        // INSERT OVERWRITE empties a table unless it is told that it replaces partitions alone, which is what we do.
        if (!own.isEmpty() && found.remove(TableCapability.TRUNCATE)) found.add(TableCapability.OVERWRITE_DYNAMIC);
        return found;
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new ColdScanBuilder(described, schema, withOwn(options));
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        SupportsWrite python = (SupportsWrite) DefaultSource.python(schema);
        if (own.isEmpty()) return python.newWriteBuilder(info);
        return new CatalogWrite(python.newWriteBuilder(new InfoWithOptions(info, withOwn(info.options()))));
    }

    private CaseInsensitiveStringMap withOwn(CaseInsensitiveStringMap options) {
        Map<String, String> all = new HashMap<>(own.asCaseSensitiveMap());
        all.putAll(options.asCaseSensitiveMap());
        return new CaseInsensitiveStringMap(all);
    }

    private record InfoWithOptions(LogicalWriteInfo info, CaseInsensitiveStringMap options) implements LogicalWriteInfo {
        @Override
        public String queryId() {
            return info.queryId();
        }

        @Override
        public StructType schema() {
            return info.schema();
        }
    }

    private record CatalogWrite(WriteBuilder python) implements SupportsDynamicOverwrite {
        @Override
        public WriteBuilder overwriteDynamicPartitions() {
            return ((SupportsTruncate) python).truncate();
        }

        @Override
        public Write build() {
            return python.build();
        }
    }

    /** A table that CREATE TABLE ... AS SELECT makes: the write commits its rows and the table at once. */
    static final class Staged extends ColdTable implements StagedTable {
        Staged(String name, StructType schema, CaseInsensitiveStringMap own) {
            super(name, schema, own);
        }

        @Override
        public void commitStagedChanges() {}

        @Override
        public void abortStagedChanges() {}
    }
}
