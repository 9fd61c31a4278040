package coldparquet;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * How many rows a scan returns at most, so that Spark broadcasts small sides of joins: those of all partitions that its
 * conditions on the designated timestamp leave, as the load has counted them. Nothing where it has not.
 */
final class Estimate implements Statistics {
    /** In the metadata of the first column; see coldparquet/spark/planning.py. */
    private static final String ROWS = "coldparquet.rows";
    private static final int BYTES_PER_ROW = 8; // what Spark adds to the columns

    private final OptionalLong rows;
    private final StructType schema;

    Estimate(StructType described, StructType schema, Filters filters, List<Map<String, Object>> told, Integer limit, boolean isOneRow) {
        this.schema = schema;
        rows = isOneRow ? OptionalLong.of(1) : rows(described, filters, told, limit == null ? Long.MAX_VALUE : limit);
    }

    private static OptionalLong rows(StructType described, Filters filters, List<Map<String, Object>> told, long most) {
        if (described.isEmpty() || !described.apply(0).metadata().contains(ROWS)) return OptionalLong.empty();
        long first = Long.MIN_VALUE, last = Long.MAX_VALUE;
        for (Map<String, Object> one : told) {
            Map<?, ?> tree = (Map<?, ?>) one.get("filter");
            Long micros = filters.microsOfTimestamp(tree);
            if (micros == null) continue;
            switch ((String) tree.get("operator")) {
                case ">" -> first = Math.max(first, micros + 1);
                case ">=" -> first = Math.max(first, micros);
                case "<" -> last = Math.min(last, micros - 1);
                case "<=" -> last = Math.min(last, micros);
                case "=", "<=>" -> {
                    first = Math.max(first, micros);
                    last = Math.min(last, micros);
                }
                default -> {}
            }
        }
        long rows = 0;
        for (Long[] stretch : stretches(described.apply(0).metadata().getString(ROWS))) {
            boolean isOutside = stretch[0] != null && (stretch[0] > last || stretch[1] < first);
            if (!isOutside) rows += stretch[2];
        }
        return OptionalLong.of(Math.min(rows, most));
    }

    private static Long[][] stretches(String json) {
        try {
            return new ObjectMapper().readValue(json, Long[][].class);
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public OptionalLong numRows() {
        return rows;
    }

    @Override
    public OptionalLong sizeInBytes() {
        if (rows.isEmpty()) return rows;
        long width = BYTES_PER_ROW;
        for (StructField field : schema.fields()) width += field.dataType().defaultSize();
        return OptionalLong.of(Math.max(1, rows.getAsLong() * width));
    }
}
