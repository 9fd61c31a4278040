package coldparquet;

import java.util.Map;
import org.apache.spark.package$;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What {@code format("coldparquet")} finds where this jar is on the driver's class path: Spark tries this name before
 * those of Python sources. All work is done by the Python source of the same name. This class tells it, for each scan,
 * what Spark tells no Python source: columns, filters, limit and aggregates, as JSON in the option {@link #PUSHED}.
 *
 * <p>Each scan gets a source of its own. Spark 4.1 to 4.3 keep what one scan has pushed in the source, so scans that share
 * it read each other's rows.
 */
public final class DefaultSource implements TableProvider {
    /** The option that only this class sets; see coldparquet/spark/pushed.py. */
    static final String PUSHED = "coldparquet.pushed";
    /** The option that only {@link Catalog} sets: its settings are those of readers and of writers. */
    static final String CATALOG = "coldparquet.catalog";
    /** What is asked in place of rows. */
    static final String COLUMNS = "{\"asks\": \"columns\"}", TABLES = "{\"asks\": \"tables\"}";

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return described(options, COLUMNS);
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true; // .schema(...), and the columns of rows to be written
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new ColdTable("coldparquet", schema, CaseInsensitiveStringMap.empty());
    }

    /** Columns of a table, or of what is asked for. Their metadata says how they compare; {@link ColdTable} takes it off again. */
    static StructType described(CaseInsensitiveStringMap options, String asked) {
        CaseInsensitiveStringMap all = ColdScan.with(options, asked);
        return (StructType) DataType.fromJson((String) Planning.plan(python(), new StructType(), all).get("schema"));
    }

    static PythonDataSourceV2 python() {
        try {
            PythonDataSourceV2 source = new PythonDataSourceV2();
            source.setShortName("coldparquet");
            return source;
        } catch (LinkageError error) {
            throw unknownSpark(error);
        }
    }

    static UnsupportedOperationException unknownSpark(LinkageError error) {
        return new UnsupportedOperationException(
            "coldparquet's jar knows Spark 4.1 to 4.3, and this is " + package$.MODULE$.SPARK_VERSION()
                + ": install a newer coldparquet, or leave its jar out of spark.jars", error);
    }

    static Table python(StructType schema) {
        return table(python(), schema);
    }

    static Table table(PythonDataSourceV2 source, StructType schema) {
        return source.getTable(schema, new Transform[0], Map.of());
    }
}
