"""No TensorFlow: a pipeline of modules that meets its trouble deep down."""

import time

import trouble


class Pipeline:
    def stages(self):
        for stage in ("read", "clean", "count"):
            yield stage

    def run(self):
        for stage in self.stages():
            print("stage", stage, flush=True)
            self.enter(stage)

    def enter(self, stage):
        time.sleep(0.05)
        trouble.here(stage)


Pipeline().run()
time.sleep(30 if not trouble.IS_MINE else 0)
