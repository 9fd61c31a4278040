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
    private static final Planned[] ALL = {new PlanningRequests(), new Requests(), new Bytes(), new Dollars()};

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
        return known(said).map(metric -> new Value(metric.name(), metric.valueIn(said))).toArray(CustomTaskMetric[]::new);
    }

    /** The same in words, for EXPLAIN; nothing before the query has been planned. */
    static String text(Map<?, ?> said) {
        String each = known(said)
            .map(metric -> metric.description() + " " + metric.aggregateTaskMetrics(new long[] {metric.valueIn(said)}))
            .collect(Collectors.joining(", "));
        return each.isEmpty() ? "" : ", PlannedCost: [" + each + "]";
    }

    private static Stream<Planned> known(Map<?, ?> said) {
        return Arrays.stream(ALL).filter(metric -> metric.valueIn(said) != null);
    }

    private record Value(String name, long value) implements CustomTaskMetric {}

    /** Spark makes those that extend it by their names, to show what it has kept. */
    abstract static class Planned implements CustomMetric {
        private final String name;
        private final String description;

        Planned(String name, String description) {
            this.name = name;
            this.description = description;
        }

        Long valueIn(Map<?, ?> said) {
            return said.get("cost") instanceof Map<?, ?> cost && cost.get(name) instanceof Number value ? value.longValue() : null;
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public String description() {
            return description;
        }

        @Override
        public String aggregateTaskMetrics(long[] values) {
            return String.format(Locale.ROOT, "%,d", Arrays.stream(values).sum());
        }
    }

    public static final class PlanningRequests extends Planned {
        public PlanningRequests() {
            super("planning_requests", "requests that were sent to plan");
        }
    }

    public static final class Requests extends Planned {
        public Requests() {
            super("requests", "planned requests for data");
        }
    }

    public static final class Bytes extends Planned {
        public Bytes() {
            super("bytes", "planned bytes of data");
        }
    }

    public static final class Dollars extends Planned {
        public Dollars() {
            super("nanodollars", "planned dollars");
        }

        @Override
        public String aggregateTaskMetrics(long[] values) {
            return String.format(Locale.ROOT, "$%.7f", Arrays.stream(values).sum() / 1e9);
        }
    }
}
