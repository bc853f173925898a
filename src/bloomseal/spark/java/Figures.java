package bloomseal.spark;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.VoidFunction;
import org.apache.spark.util.LongAccumulator;

/**
 * Shows figures in Spark's UI. What Python counts has no name there, and the UI shows accumulators only with the stage whose tasks
 * have added to them; so a stage of one task adds to named ones, and does nothing else.
 *
 * Written for Janino, hence without lambdas and generics.
 */
public final class Figures implements VoidFunction {
    private final List accumulators = new ArrayList();
    private final List values = new ArrayList();

    private Figures(JavaSparkContext context, Map figures) {
        for (Iterator names = figures.keySet().iterator(); names.hasNext();) {
            String name = (String) names.next();
            accumulators.add(context.sc().longAccumulator(name));
            values.add(Long.valueOf(((Number) figures.get(name)).longValue()));
        }
    }

    /** Returns at once; the stage, called by the title, follows. */
    public static void show(JavaSparkContext context, String title, Map figures) {
        String described = context.getLocalProperty("spark.job.description");
        context.sc().setJobDescription(title);
        context.setCallSite(title);
        try {
            context.parallelize(Collections.singletonList(Integer.valueOf(0)), 1).foreachAsync(new Figures(context, figures));
        } finally {
            context.clearCallSite();
            context.sc().setJobDescription(described);
        }
    }

    public void call(Object nothing) {
        for (int i = 0; i < accumulators.size(); i++) {
            ((LongAccumulator) accumulators.get(i)).add(((Long) values.get(i)).longValue());
        }
    }
}
