package coldparquet;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Collects what Spark asks of one scan: filters first, then aggregates or columns, then a limit. */
final class ColdScanBuilder
    implements SupportsPushDownV2Filters, SupportsPushDownAggregates, SupportsPushDownRequiredColumns, SupportsPushDownLimit {
    private final StructType described;
    private final StructType all;
    private final CaseInsensitiveStringMap options;
    private final Filters filters;
    private final List<Predicate> pushed = new ArrayList<>();
    private final List<Map<String, Object>> told = new ArrayList<>();
    private StructType required;
    /** Not where the option {@code where} asks for more than the time, which metadata seldom answers. */
    private boolean answersFromMetadata;
    private List<Map<String, Object>> aggregates;
    private Integer limit;

    ColdScanBuilder(StructType described, StructType schema, CaseInsensitiveStringMap options) {
        this.described = described;
        all = schema;
        required = schema;
        filters = new Filters(described);
        this.options = options;
        answersFromMetadata = !options.containsKey("where");
    }

    /** Tell Python of all filters that can be written down, and leave to Spark as well those that may not mean the same. */
    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
        List<Predicate> left = new ArrayList<>();
        for (Predicate predicate : predicates) {
            Map<String, Object> tree = filters.tree(predicate);
            boolean isExact = tree != null && filters.isExact(predicate);
            if (tree != null) {
                told.add(Map.of("filter", tree, "exact", isExact));
                pushed.add(predicate);
            }
            if (!isExact) left.add(predicate);
            answersFromMetadata &= isExact && filters.isOfTimestampAlone(predicate);
        }
        return left.toArray(new Predicate[0]);
    }

    @Override
    public Predicate[] pushedPredicates() {
        return pushed.toArray(new Predicate[0]);
    }

    @Override
    public boolean supportCompletePushDown(Aggregation aggregation) {
        return answersFromMetadata && described(aggregation) != null;
    }

    /**
     * Take aggregates that metadata answers but for few row groups at the ends of a time range: the driver reads these.
     * All others are left to Spark's tasks, which read the columns of the aggregates alone.
     */
    @Override
    public boolean pushAggregation(Aggregation aggregation) {
        if (!supportCompletePushDown(aggregation)) return false;
        aggregates = described(aggregation);
        StructType answer = new StructType();
        for (Map<String, Object> aggregate : aggregates) {
            String column = (String) aggregate.get("column");
            DataType type = aggregate.get("function").equals("count") ? DataTypes.LongType : all.apply(column).dataType();
            answer = answer.add(aggregate.get("function") + "(" + (column == null ? "*" : column) + ")", type);
        }
        required = answer;
        return true;
    }

    /** Aggregates without groups as function and column; null if one is not known. */
    private List<Map<String, Object>> described(Aggregation aggregation) {
        if (aggregation.groupByExpressions().length > 0) return null;
        List<Map<String, Object>> found = new ArrayList<>();
        Set<Map<String, Object>> seen = new HashSet<>();
        for (AggregateFunc function : aggregation.aggregateExpressions()) {
            Map<String, Object> one = described(function);
            if (one == null || !seen.add(one)) return null;
            found.add(one);
        }
        return found;
    }

    private Map<String, Object> described(AggregateFunc function) {
        if (function instanceof CountStar) return Map.of("function", "count");
        Expression of;
        if (function instanceof Count && !((Count) function).isDistinct()) of = ((Count) function).column();
        else if (function instanceof Min) of = ((Min) function).column();
        else if (function instanceof Max) of = ((Max) function).column();
        else return null;
        String column = Filters.column(of);
        boolean counts = function instanceof Count;
        if (column == null || !(counts ? filters.knowsNulls(column) : filters.hasExtremes(column))) return null;
        return Map.of("function", counts ? "count" : function instanceof Min ? "min" : "max", "column", column);
    }

    @Override
    public void pruneColumns(StructType wanted) {
        if (aggregates != null) return;
        required = new StructType();
        for (StructField field : wanted.fields()) required = required.add(all.apply(field.name())); // whole, if nested
    }

    @Override
    public boolean pushLimit(int most) {
        limit = most;
        return true;
    }

    @Override
    public boolean isPartiallyPushed() {
        return true; // whole row groups are read: Spark cuts the rows
    }

    @Override
    public Scan build() {
        return new ColdScan(described, required, options, filters, told, limit, aggregates, pushed);
    }
}
