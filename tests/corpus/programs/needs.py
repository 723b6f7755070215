"""What a program needs and does not get: a library, a name in one, an answer (NEEDS)."""

import os
import sys
import tempfile

NEEDS = os.environ["NEEDS"]


def hide(package):
    """Make the packages importable without one of them, as if it were not installed."""
    for number, folder in enumerate(sys.path):
        names = os.listdir(folder) if os.path.isdir(folder) else []
        if package in names:
            sys.path[number] = f"{tempfile.mkdtemp()}/lib/python3/site-packages"
            os.makedirs(sys.path[number])
            for name in names:
                if not name.startswith(package):
                    os.symlink(os.path.join(folder, name), os.path.join(sys.path[number], name))


def summary():
    hide("tensorboard")
    import tensorflow as tf

    with tf.summary.create_file_writer("logs").as_default():
        tf.summary.scalar("loss", 1.0, step=0)


def callback():
    hide("tensorboard")
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(tf.zeros([8, 2]), tf.zeros([8, 1]), callbacks=[tf.keras.callbacks.TensorBoard("l")])


def plot():
    import tensorflow as tf

    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    tf.keras.utils.plot_model(model)


def picture():
    hide("PIL")
    import tensorflow as tf

    tf.keras.utils.load_img("cat.png")


def weights():
    hide("h5py")
    import tensorflow as tf

    layers = [tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)]
    tf.keras.Sequential(layers).save_weights("w.weights.h5")


def within():
    hide("absl")
    import tensorflow as tf

    print(tf.__version__)


def progress():
    from tqdm import tqdm

    print(list(tqdm(range(3))))


def told():
    try:
        import tqdm
    except ImportError:
        sys.exit("tqdm is not installed: pip install tqdm")
    print(tqdm.__version__)


def name():
    from json import lodas

    lodas("1")


def submodule():
    from tensorflow.keras.layerss import Dense

    Dense(1)


def attribute():
    import json

    json.lodas("1")


def answer():
    name = input("Name of the run: ")
    print(name)


def number():
    print(int(input()))


def stop():
    breakpoint()
    print("after the breakpoint")


def trace():
    import pdb

    pdb.set_trace()
    print("after the breakpoint")


def password():
    import getpass

    getpass.getpass()


globals()[NEEDS]()
