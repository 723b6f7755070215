"""What the program is warned about before a launch, and what it is not: each rule by itself.

Programs that are right get no warning: those of this repository, and others in other styles.
"""

# ruff: noqa: ISC004, E501 - the programs are a line or two each

import sys
from pathlib import Path
from typing import Any

import pytest

from distrun.lint.check import check_program
from distrun.lint.program import Program
from distrun.lint.rules import RULES, check, imported_modules
from distrun.spec import resources
from distrun.spec.loader import load
from distrun.spec.target import Target
from harness.requirements import need_tensorflow

MWM, PS, MIRRORED = "multi_worker_mirrored", "parameter_server", "mirrored"
NO_CHIEF = "parameter_server, workers: independent"
TF = "import tensorflow as tf\n"
V1 = "import tensorflow.compat.v1 as tf\n"
CLUSTERS = {
    MWM: "{worker: 2}",
    PS: "{chief: 1, worker: 2, ps: 1}",
    NO_CHIEF: "{worker: 2, ps: 1}",
    MIRRORED: "{worker: 1}",
    "tpu": "{worker: 1}",
}
CREATED = "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Check a program: `train.py` and files beside it; returns `line:column message`."""
    monkeypatch.chdir(tmp_path)

    def run(
        code: str,
        strategy: str = MWM,
        *,
        keras: int | None = 3,
        lacks: str = "",
        beside: dict[str, str] | None = None,
        program: str = "script: train.py",
    ) -> list[str]:
        for name, text in {"train": code, **(beside or {})}.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        target = Target(path=str(tmp_path / "train.py"), folder=str(tmp_path), python=None)
        read = Program(target)
        assert not read.faults
        (tmp_path / "job.yaml").write_text(
            f"{{strategy: {strategy}, cluster: {CLUSTERS[strategy]}, program: {{{program}}}}}"
        )
        read.keras = keras
        read.missing = frozenset(lacks.split()) & set(imported_modules(read))
        found = check(read, load(tmp_path / "job.yaml"), RULES)
        return [str(each).removeprefix("train.py:") for each in found]

    return run


# What is warned about: the strategy, the code, the place and words of the only warning.
BAD = [
    # another strategy than the spec's
    (MWM, TF + "s = tf.distribute.MirroredStrategy()", "2:5", "creates MirroredStrategy, but the"),
    (MIRRORED, TF + CREATED, "2:12", "strategy: multi_worker_mirrored"),
    (PS, TF + "x = 1\nwith tf.distribute.MirroredStrategy().scope(): pass\n"
     "if x == 'ps': tf.distribute.Server({}).join()\ntf.config.experimental_connect_to_cluster(x)",
     "3:6", "creates MirroredStrategy"),
    (MWM, "from tensorflow.distribute import MirroredStrategy as S\ndef main():\n  s = S()\n"
     "main()", "3:7", "strategy: mirrored"),
    # TF_CONFIG set by the program
    (MWM, "import os\nos.environ['TF_CONFIG'] = '{}'\n", "2:1", "sets or removes TF_CONFIG"),
    (MWM, "from os import environ as e\ndef f():\n  e['TF_CONFIG'] = '{}'\nf()", "3:3", "TF_CONFIG"),
    (MWM, "import os\nos.environ.pop('TF_CONFIG', None)", "2:1", "TF_CONFIG"),
    (MWM, "import os\nif __name__ == '__main__':\n  del os.environ['TF_CONFIG']", "3:7", "TF_CONFIG"),
    (MWM, "import os\nos.environ.clear()\nos.environ['A'] = 'b'", "2:1", "TF_CONFIG"),
    # a strategy after the first operation
    (MWM, TF + "x = tf.constant(1)\n" + CREATED, "3:12", "tf.constant in line 2"),
    (MWM, TF + "d = tf.data.Dataset.range(9)\ndef main():\n  s = tf.distribute."
     "MultiWorkerMirroredStrategy()\nmain()", "4:7", "tf.data.Dataset.range in line 2"),
    # a cluster that is not in TF_CONFIG
    (MWM, TF + "r = tf.distribute.cluster_resolver.SlurmClusterResolver()\n"
     "s = tf.distribute.MultiWorkerMirroredStrategy(cluster_resolver=r)", "3:5",
     "takes its cluster from SlurmClusterResolver, which does not read TF_CONFIG"),
    # workers and ps without servers
    (PS, TF + "s = tf.distribute.Server({})\ns = tf.distribute.ParameterServerStrategy(None)\n"
     "c = tf.distribute.coordinator.ClusterCoordinator(s)\nc.join()\nprint(','.join([]))", "2:5",
     "never waits at it"),
    (PS, TF + "s = tf.distribute.ParameterServerStrategy(None)", "1:1", "never starts a server"),
    # workers that train by themselves
    (NO_CHIEF, V1 + "s = tf.train.Server({})\ns.join()\ntf.Session(s.target)", "3:1",
     "every task waits at its server here: nobody trains"),
    # keys that are not written
    (PS, V1 + "s = tf.train.Server({})\nif 'ps' in str(s):\n  s.join()\n"
     "with tf.train.MonitoredTrainingSession(s.target): pass", "5:6",
     "tf.compat.v1.train.MonitoredTrainingSession is for workers that train by themselves"),
    (MWM, "import os\nprint(os.environ['DISTRUN_ADDRESS'])", "2:18", "keeps that port bound"),
    # nothing runs
    (MWM, "def main():\n  print(1)\nif __name__ == 'main':\n  main()", "3:4", "nothing of this runs"),
    (MWM, "import os\ndef main():\n  print(1)\nif __name__ == '__main__':\n  main", "2:1",
     "defines main() and calls nothing"),
    (MWM, TF + "def main(r):\n  tf.config.experimental_connect_to_cluster(r)\nmain(1)", "3:3",
     "waits here for servers"),
    # Keras 2
    (MWM, TF + "m = tf.keras.metrics.Mean()\nfor _ in range(2): m.reset_states()", "3:20",
     "reset_states() of metrics.Mean"),
    (MWM, TF + "m = tf.keras.Sequential([])\nm.save_weights('w.h5')", "3:1", ".weights.h5"),
    (MWM, TF + "import os\nm = tf.keras.Model()\nm.save(os.path.join('a', 'model'))", "4:1", "end in .keras or .h5"),
    (MWM, TF + CREATED + "m = tf.keras.Sequential([])\nm.fit([])", "4:1", "Model.fit of Keras 3"),
    # a module that is nowhere
    (MWM, "import nowhere", "1:1", "no module 'nowhere': neither beside"),
]  # fmt: skip

# Near misses: right code, and code about which nothing can be said.
GOOD = [
    (MWM, "import os\nkept = dict(os.environ)\nos.environ.clear()\nos.environ.update(kept)"),
    (MWM, TF + CREATED),
    (MWM, "try:\n  from . import model\nexcept ImportError:\n  import helper"),
    # a strategy that is chosen, or not certain
    (MWM, TF + "import sys\nif '-m' in sys.argv:\n  s = tf.distribute.MirroredStrategy()"),
    (MWM, TF + "s = getattr(tf.distribute, 'MultiWorker' + 'MirroredStrategy')()\n"
     "t = tf.distribute.MirroredStrategy()"),
    (MWM, TF + "import sys\nS = {'a': tf.distribute.MirroredStrategy,\n"
     "     'b': lambda: tf.distribute.OneDeviceStrategy('/cpu:0')}\ndef create(name):\n"
     "  if name == 'tpu':\n    r = tf.distribute.cluster_resolver.TPUClusterResolver()\n"
     "    tf.tpu.experimental.initialize_tpu_system(r)\n    return tf.distribute.TPUStrategy(r)\n"
     "  return S[name]()\ndef main(argv=None):\n  s = create(sys.argv[1])\n  with s.scope():\n"
     "    w = tf.Variable(tf.zeros([2]))\nif __name__ == '__main__':\n  sys.exit(main())"),
    # in a class, which may be used at any time
    (MWM, TF + "import os\nclass Trainer:\n  def __init__(self):\n"
     "    self.config = os.environ.get('TF_CONFIG', '{}')\n"
     "    self.strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
     "    with self.strategy.scope():\n      self.model = tf.keras.Sequential([])\n"
     "  @tf.function\n  def step(self, iterator):\n    def replica(batch):\n"
     "      with tf.GradientTape():\n        self.model(batch)\n"
     "    self.strategy.run(replica, args=(next(iterator),))\ntrainer = Trainer()\n"
     "trainer.model.save_weights('a.weights.h5')\n"
     "tf.constant(1)\nos.environ['TF_CONFIG'] = trainer.config"),
    # what may run something, or is right in a module
    (MWM, "import helper\ndef f():\n  pass"),
    # TF_CONFIG read, made of the given one, or set on a condition
    (MWM, "import os\nos.environ.setdefault('TF_CONFIG', '{}')"),
    (MWM, "import os\nif 'TF_CONFIG' not in os.environ:\n  os.environ['TF_CONFIG'] = '{}'"),
    (MWM, "import os\nos.environ['TF_CONFIG'] = os.environ.get('TF_CONFIG', '{}')"),
    (MWM, "import os\ndef f():\n  if os.getpid():\n    return\n  os.environ['TF_CONFIG'] = ''\nf()"),
    # what is no operation, or runs later
    (MWM, TF + "@tf.function\ndef f():\n  return tf.constant(1)\n" + CREATED + "f()"),
    (MWM, TF + CREATED + "tf.constant(1)"),
    (MWM, TF + "r = tf.distribute.cluster_resolver\ns = tf.distribute.MultiWorkerMirroredStrategy("
     "cluster_resolver=r.TFConfigClusterResolver())"),
    ("tpu", TF + "r = tf.distribute.cluster_resolver.TPUClusterResolver()\n"
     "s = tf.distribute.TPUStrategy(r)"),
    (MWM, TF + "tf.compat.v1.disable_eager_execution()\nx = tf.constant(1)\n" + CREATED),
    # servers
    (PS, TF + "import my_cluster\ns = tf.distribute.ParameterServerStrategy(None)"),
    (NO_CHIEF, "import tensorflow.compat.v1 as tf\ns = tf.train.Server({})\nif 'ps' in str(s):\n"
     "  s.join()\nwith tf.train.MonitoredTrainingSession(s.target): pass"),
    (NO_CHIEF, V1 + "c = tf.estimator.RunConfig()\ntf.estimator.train_and_evaluate(c, None, None)"),
    (NO_CHIEF, V1 + "import sys\ns = tf.train.Server({})\nif sys.argv[1] == 'worker':\n"
     "  sys.exit(tf.Session(s.target))\ns.join()"),
    # compat.v1, conditions and guards
    (MWM, TF + "if hasattr(tf, 'Session'):\n  tf.Session()"),
    (MWM, TF + "try:\n  tf.logging.set_verbosity(1)\nexcept AttributeError:\n  pass"),
    (MWM, "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  import nowhere"),
    (MWM, TF + "tf.keras.metrics.Mean.reset_states = print\ntf.keras.metrics.Mean().reset_states()"),
    # Keras 3 code, or Keras 2 on purpose
    (MWM, TF + "class M:\n  def reset_states(self): pass\nm = M()\nm.reset_states()"),
    (MWM, "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '1'\n" + TF
     + "tf.keras.metrics.Mean().reset_states()"),
    (MWM, TF + "m = tf.keras.Sequential([])\nm.save_weights('a.weights.h5')\nm.save('m.keras')"),
    (MIRRORED, TF + "m = tf.keras.Sequential([])\nm.fit([])"),
    # modules
    (MWM, "from package import inner, unknown\nimport package.inner"),
    (MWM, "import sys\nsys.path.insert(0, 'lib')\nimport nowhere"),
]  # fmt: skip


@pytest.mark.parametrize(("strategy", "code", "place", "words"), BAD)
def test_a_mistake_is_told(lint: Any, strategy: str, code: str, place: str, words: str) -> None:
    beside = {"package/inner": "y = 1", "package/__init__": ""}
    found = lint(code, strategy, lacks="nowhere", beside=beside)
    assert len(found) == 1, found
    assert found[0].startswith(f"{place}: ")
    assert words in found[0]


@pytest.mark.parametrize(("strategy", "code"), GOOD)
def test_what_is_right_or_undecided_is_not(lint: Any, strategy: str, code: str) -> None:
    beside = {"helper": "x = 1", "package/inner": "y = 1", "package/__init__": ""}
    assert lint(code, strategy, lacks="nowhere", beside=beside) == []


def test_modules_beside_the_script_are_read_as_well(lint: Any) -> None:
    code = TF + "import helper\nfrom package import inner\nhelper.setup()\n"
    beside = {
        "helper": "import os\ndef setup():\n  os.environ['TF_CONFIG'] = '{}'\n",
        "package/__init__": "",
        "package/inner": "from . import deep\n",
        "package/deep": TF + "tf.keras.metrics.Mean().reset_states()\nimport nowhere\n",
    }
    found = [each.partition(": ")[0] for each in lint(code, beside=beside, lacks="nowhere")]
    assert found == ["helper.py:3:3", "package/deep.py:2:1", "package/deep.py:3:1"]


def test_a_missing_module_has_a_suggestion(lint: Any) -> None:
    found = lint("import helpr\nimport helper\n", beside={"helper": ""}, lacks="helpr")
    assert found == [
        "1:1: there is no module 'helpr': neither beside the script, nor in python; did you mean "
        "'helper'?"
    ]
    (found,) = lint("import tensorflow\n", lacks="tensorflow")
    assert found.endswith("run python -m pip install tensorflow")


def test_what_the_environment_or_the_spec_makes_right_is_not_warned_about(lint: Any) -> None:
    code = TF + "tf.keras.metrics.Mean().reset_states()\n"
    assert [len(lint(code, keras=keras)) for keras in (3, 2, None)] == [1, 0, 0]
    code = "import os\nos.environ['TF_CONFIG'] = '{}'\n"
    assert len(lint(code)) == 1
    assert lint(code, program="script: train.py, tf_config: mine") == []


@pytest.mark.parametrize(
    "line",
    ["a{1} = a{0}.x\na{1} = a{0}.y\n", "def a{1}():\n    return a{0}().x if q else a{0}().y\n",
     "def a{1}():\n    if q:\n        return a{0}().x\n    return a{0}().y\n"],
)  # fmt: skip
def test_meanings_that_double_with_each_line_are_not_all_listed(lint: Any, line: str) -> None:
    code = TF + "a0 = tf\n" + "".join(line.format(n, n + 1) for n in range(24))
    assert lint(code + "a24.train()\na24().train()\n") == []


ROOT = Path(__file__).resolve().parents[2]
RIGHT = Path(__file__).parent / "right_programs"
PLAIN = ROOT / "tests" / "e2e" / "plain"
EXAMPLES = ROOT / "jobs" / "examples"
WORKERS = f"{MWM}, cluster: {{worker: 2}}"
SERVERS = f"{PS}, cluster: {{chief: 1, worker: 2, ps: 2}}"


@pytest.mark.parametrize(
    ("strategy", "program"),
    [
        (WORKERS, f"script: {PLAIN}/tutorial.py, env: {{TF_USE_LEGACY_KERAS: 1}}"),
        (WORKERS, f"script: {PLAIN}/tutorial.py, keras: 2"),
        ("mirrored", f"script: {EXAMPLES}/custom_loop.py"),
        (WORKERS, f"script: {EXAMPLES}/keras_fit.py"),
        (SERVERS, f"script: {EXAMPLES}/parameter_server.py"),
        ("mirrored", f"script: {EXAMPLES}/data_service.py"),
        (SERVERS, "script: mnist"),
        (SERVERS, f"module: trainer.main, workdir: {RIGHT}"),
        (SERVERS, f"command: [{sys.executable}, -u, -m, trainer.main], workdir: {RIGHT}"),
    ],
)
def test_a_right_program_has_no_warning(
    strategy: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_tensorflow()
    # A launch does not read the bundled jobs; here they are checked like others.
    monkeypatch.setattr(Target, "is_bundled", False)
    python = "" if "command" in program else f", python: {sys.executable}"
    spec = f"{{strategy: {strategy}, program: {{{program}{python}}}}}"
    (tmp_path / "job.yaml").write_text(spec)
    assert check_program(load(tmp_path / "job.yaml")) == ()


@pytest.mark.parametrize("name", sorted(resources.templates()))
def test_a_template_has_no_warning(name: str, tmp_path: Path) -> None:
    need_tensorflow()
    spec = tmp_path / "job.yaml"
    spec.write_text(resources.templates()[name].read_text())
    examples = resources.examples()
    if name in examples:
        (tmp_path / examples[name].name).write_text(examples[name].read_text())
    (tmp_path / "train.py").write_text((PLAIN / "replicas.py").read_text())
    assert check_program(load(spec)) == ()
