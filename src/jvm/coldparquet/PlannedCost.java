package coldparquet;

import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** What a plan costs, for Spark's UI: the driver says it, so that executors need none of these classes. */
final class PlannedCost {
    private static final CustomMetric[] ALL = {new PlanningRequests(), new Requests(), new Bytes(), new Dollars()};

    private PlannedCost() {}

    /** Those of Spark, and ours. */
    static CustomMetric[] with(CustomMetric[] others) {
        if (!isKnownToUi()) return others;
        return Stream.concat(Arrays.stream(others), Arrays.stream(ALL)).toArray(CustomMetric[]::new);
    }

    /** Whether Spark's UI finds these classes by their names: after ADD JAR only sessions do, and the UI warns and shows N/A. */
    private static boolean isKnownToUi() {
        ClassLoader ofContext = SparkSession.active().sharedState().jarClassLoader().getParent();
        try {
            return Class.forName(Requests.class.getName(), false, ofContext) == Requests.class;
        } catch (ClassNotFoundException notThere) {
            return false;
        }
    }

    /** The values of a plan, as its first partition says them; those that it does not know are left out. */
    static CustomTaskMetric[] of(Map<?, ?> said) {
        if (!(said.get("cost") instanceof Map<?, ?> cost)) return new CustomTaskMetric[0];
        return Arrays.stream(ALL)
            .map(CustomMetric::name)
            .filter(name -> cost.get(name) instanceof Number)
            .map(name -> new Value(name, ((Number) cost.get(name)).longValue()))
            .toArray(CustomTaskMetric[]::new);
    }

    /** The same in words, for EXPLAIN; nothing before the query has been planned. */
    static String text(Map<?, ?> said) {
        if (!(said.get("cost") instanceof Map<?, ?> cost)) return "";
        return Arrays.stream(ALL)
            .filter(metric -> cost.get(metric.name()) instanceof Number)
            .map(metric -> metric.description() + " " + metric.aggregateTaskMetrics(new long[] {((Number) cost.get(metric.name())).longValue()}))
            .collect(Collectors.joining(", ", ", PlannedCost: [", "]"));
    }

    private record Value(String name, long value) implements CustomTaskMetric {}

    /** Spark makes these by their names, to show what it has kept. */
    public static class PlanningRequests implements CustomMetric {
        @Override
        public String name() {
            return "planning_requests";
        }

        @Override
        public String description() {
            return "requests that were sent to plan";
        }

        @Override
        public String aggregateTaskMetrics(long[] values) {
            return String.format(Locale.ROOT, "%,d", Arrays.stream(values).sum());
        }
    }

    public static final class Requests extends PlanningRequests {
        @Override
        public String name() {
            return "requests";
        }

        @Override
        public String description() {
            return "planned requests for data";
        }
    }

    public static final class Bytes extends PlanningRequests {
        @Override
        public String name() {
            return "bytes";
        }

        @Override
        public String description() {
            return "planned bytes of data";
        }
    }

    public static final class Dollars extends PlanningRequests {
        @Override
        public String name() {
            return "nanodollars";
        }

        @Override
        public String description() {
            return "planned dollars";
        }

        @Override
        public String aggregateTaskMetrics(long[] values) {
            return String.format(Locale.ROOT, "$%.7f", Arrays.stream(values).sum() / 1e9);
        }
    }
}
