"""The bundled job: the techniques of TensorFlow's tutorials, each with every strategy."""
