package bloomseal.spark;

import com.codahale.metrics.MetricRegistry;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.spark.SparkEnv;
import org.apache.spark.metrics.MetricsSystem;
import org.apache.spark.metrics.source.Source;
import scala.collection.immutable.Seq;

/**
 * What a JVM's reads and its key bridge did, as a source of Spark's metrics system by the name of bloomseal: every sink that the
 * platform has configured (Prometheus, JMX, Graphite, StatsD) gets it.
 *
 * Written for Janino, hence without lambdas and generics.
 */
public final class Measures implements Source, Consumer {
    private static final String NAME = "bloomseal";

    private final MetricRegistry registry = new MetricRegistry();

    public String sourceName() {
        return NAME;
    }

    public MetricRegistry metricRegistry() {
        return registry;
    }

    /** Counts what Python has counted: a text of name=number, separated by spaces. */
    public void accept(Object told) {
        MetricRegistry known = known();
        String[] pairs = ((String) told).split(" ");
        for (int i = 0; i < pairs.length; i++) {
            int at = pairs[i].indexOf('=');
            known.counter(pairs[i].substring(0, at)).inc(Long.parseLong(pairs[i].substring(at + 1)));
        }
    }

    /** A key that the bridge has asked its helper for; problem: the counter of those that it did not get, or null. */
    static void asked(String problem, long nanoseconds) {
        MetricRegistry known = known();
        known.timer("bridge.keys").update(nanoseconds, TimeUnit.NANOSECONDS);
        if (problem != null) {
            known.counter(problem).inc();
        }
    }

    /**
     * Those of this JVM's metrics system. Each session's class loader has a copy of this class, so the system is asked, and no field.
     */
    private static MetricRegistry known() {
        MetricsSystem system;
        try {
            // By handles: to compile a call, Janino looks at all methods of SparkEnv, one of which has a type that Spark doesn't bring.
            MethodHandles.Lookup lookup = MethodHandles.publicLookup();
            MethodHandle get = lookup.findStatic(SparkEnv.class, "get", MethodType.methodType(SparkEnv.class));
            MethodHandle of = lookup.findVirtual(SparkEnv.class, "metricsSystem", MethodType.methodType(MetricsSystem.class));
            Object env = get.invokeWithArguments(new Object[0]);
            if (env == null) {
                return new MetricRegistry(); // no Spark runs here, or no longer
            }
            system = (MetricsSystem) of.invokeWithArguments(new Object[] {env});
        } catch (Throwable e) {
            return new MetricRegistry(); // what can't be counted must not keep keys back
        }
        synchronized (system) {
            Seq found = system.getSourcesByName(NAME);
            if (found.isEmpty()) {
                Measures made = new Measures();
                system.registerSource(made);
                return made.registry;
            }
            return ((Source) found.head()).metricRegistry();
        }
    }
}
