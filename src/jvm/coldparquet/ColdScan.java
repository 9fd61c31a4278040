package coldparquet;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
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
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One scan: that of a Python source of its own, which is told what was pushed, and what joins have found meanwhile. */
final class ColdScan implements SupportsRuntimeV2Filtering, SupportsReportStatistics {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final StructType schema;
    private final CaseInsensitiveStringMap options;
    private final Map<String, Object> pushed = new LinkedHashMap<>();
    private final List<Map<String, Object>> told;
    private final Filters filters;
    private final String description;
    private final Object same;
    private final Statistics estimate;
    private Scan python;
    private Batch batch;

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
        same = List.of(schema, tell().asCaseSensitiveMap());
    }

    /** Make the scan of a new Python source, which plans when its tasks are asked for; return what it is told. */
    private CaseInsensitiveStringMap tell() {
        CaseInsensitiveStringMap all = with(options, json(pushed));
        python = ((SupportsRead) DefaultSource.python(schema)).newScanBuilder(all).build();
        batch = null;
        return all;
    }

    private synchronized Batch batch() {
        if (batch == null) batch = python.toBatch();
        return batch;
    }

    /** Columns by which a join may leave rows out once it knows its other side. */
    @Override
    public NamedReference[] filterAttributes() {
        return pushed.size() > 1 ? new NamedReference[0] : filters.comparable(schema);
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

    private static String json(Object value) {
        try {
            return JSON.writeValueAsString(value);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
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
    public String description() {
        return description;
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
        return python.supportedCustomMetrics();
    }

    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
        return python.reportDriverMetrics();
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
