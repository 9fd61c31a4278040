package coldparquet;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One scan: that of a Python source of its own, which is told what was pushed, and what joins have found meanwhile. */
final class ColdScan implements SupportsRuntimeV2Filtering, SupportsReportStatistics {
    /** In the metadata of the first column: names the load, whose state serves its first scan within a second. */
    private static final String LOAD = "coldparquet.load";

    private final StructType schema;
    private final CaseInsensitiveStringMap options;
    private final Map<String, Object> pushed = new LinkedHashMap<>();
    private final List<Map<String, Object>> told;
    private final Filters filters;
    private final String description;
    private final Object same;
    private final Statistics estimate;
    private PythonDataSourceV2 source;
    private CaseInsensitiveStringMap asked;
    private Scan python;
    private Batch batch;
    private Map<?, ?> said = Map.of();

    ColdScan(
        StructType described, StructType schema, CaseInsensitiveStringMap options, Filters filters,
        List<Map<String, Object>> told, Integer limit, List<Map<String, Object>> aggregates, List<Predicate> shown) {
        this.schema = schema;
        this.options = options;
        this.filters = filters;
        this.told = new ArrayList<>(told);
        pushed.put("filters", this.told);
        if (limit != null) pushed.put("limit", limit);
        if (aggregates != null) pushed.put("aggregates", aggregates);
        description = "coldparquet PushedFilters: " + shown + (limit == null ? "" : ", PushedLimit: " + limit)
            + (aggregates == null ? "" : ", PushedAggregates: " + List.of(schema.fieldNames()))
            + ", ReadSchema: " + schema.simpleString();
        estimate = new Estimate(described, schema, filters, told, limit, aggregates != null);
        tell();
        same = List.of(schema, asked.asCaseSensitiveMap());
        Metadata first = described.isEmpty() ? Metadata.empty() : described.apply(0).metadata();
        if (first.contains(LOAD)) {
            pushed.put("load", first.getString(LOAD)); // of no two loads the same
            tell();
        }
    }

    /** Make the scan of a new Python source, which plans when its tasks are asked for. */
    private void tell() {
        source = DefaultSource.python();
        asked = with(options, Planning.json(pushed));
        python = ((SupportsRead) DefaultSource.table(source, schema)).newScanBuilder(asked).build();
        batch = null;
    }

    private synchronized Batch batch() {
        if (batch == null) {
            said = Planning.plan(source, schema, asked);
            batch = python.toBatch();
        }
        return batch;
    }

    /** Columns by which a join may leave rows out once it knows its other side. */
    @Override
    public NamedReference[] filterAttributes() {
        return pushed.containsKey("limit") || pushed.containsKey("aggregates") ? new NamedReference[0] : filters.comparable(schema);
    }

    @Override
    public synchronized void filter(Predicate[] found) {
        for (Predicate predicate : found) {
            Map<String, Object> tree = filters.tree(predicate);
            if (tree != null) told.add(Map.of("filter", tree, "exact", false)); // the join itself drops other rows
        }
        tell();
    }

    /** The options, and the one that the Python source knows this jar by. */
    static CaseInsensitiveStringMap with(CaseInsensitiveStringMap options, String pushed) {
        Map<String, String> all = new HashMap<>(options.asCaseSensitiveMap());
        all.put(DefaultSource.PUSHED, pushed);
        return new CaseInsensitiveStringMap(all);
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    @Override
    public Statistics estimateStatistics() {
        return estimate;
    }

    @Override
    public synchronized String description() {
        return description + PlannedCost.text(said);
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return python.columnarSupportMode(); // otherwise Spark plans all tasks to find out
    }

    @Override
    public Batch toBatch() {
        return new ColdBatch(this);
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        return python.toMicroBatchStream(checkpoint);
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
        return PlannedCost.with(python.supportedCustomMetrics());
    }

    @Override
    public synchronized CustomTaskMetric[] reportDriverMetrics() {
        return PlannedCost.of(said); // Spark asks when it has planned
    }

    /** Equal where the same is asked, so that Spark reads it once in a query. */
    private static final class ColdBatch implements Batch {
        private final ColdScan scan;

        ColdBatch(ColdScan scan) {
            this.scan = scan;
        }

        @Override
        public InputPartition[] planInputPartitions() {
            return scan.batch().planInputPartitions();
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return scan.batch().createReaderFactory(); // of the last plan: Spark keeps the batch of the first one
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof ColdBatch batch && batch.scan.same.equals(scan.same);
        }

        @Override
        public int hashCode() {
            return scan.same.hashCode();
        }
    }
}
