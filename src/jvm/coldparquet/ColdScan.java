package coldparquet;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One scan: that of a Python source of its own, which is told what was pushed. */
final class ColdScan implements Scan {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final StructType schema;
    private final String description;
    private final Object same;
    private final Scan python;

    ColdScan(
        StructType schema, CaseInsensitiveStringMap options, List<Map<String, Object>> filters, Integer limit,
        List<Map<String, Object>> aggregates, List<Predicate> shown) {
        Map<String, Object> pushed = new LinkedHashMap<>();
        pushed.put("filters", filters);
        if (limit != null) pushed.put("limit", limit);
        if (aggregates != null) pushed.put("aggregates", aggregates);
        CaseInsensitiveStringMap told = with(options, json(pushed));
        this.schema = schema;
        same = List.of(schema, told.asCaseSensitiveMap());
        description = "coldparquet PushedFilters: " + shown + (limit == null ? "" : ", PushedLimit: " + limit)
            + (aggregates == null ? "" : ", PushedAggregates: " + List.of(schema.fieldNames()))
            + ", ReadSchema: " + schema.simpleString();
        python = ((SupportsRead) DefaultSource.python(schema)).newScanBuilder(told).build();
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
    public String description() {
        return description;
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
        return python.columnarSupportMode(); // otherwise Spark plans all tasks to find out
    }

    @Override
    public Batch toBatch() {
        return new ColdBatch(python.toBatch(), same);
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
    private record ColdBatch(Batch python, Object same) implements Batch {
        @Override
        public InputPartition[] planInputPartitions() {
            return python.planInputPartitions();
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return python.createReaderFactory();
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof ColdBatch batch && batch.same.equals(same);
        }

        @Override
        public int hashCode() {
            return same.hashCode();
        }
    }
}
