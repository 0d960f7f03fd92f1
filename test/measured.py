"""A format of tests for lit."""
import resource

import lit.Test
import lit.formats


class Measured(lit.formats.ShTest):
    """With the time of the processor that the programs of a test took: each worker runs one test at a time."""

    def execute(self, test, lit_config):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = super().execute(test, lit_config)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        result.addMetric("cpu", lit.Test.RealMetricValue(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        return result
