"""The example scripts: short, complete, and with the steps of TensorFlow's tutorials."""

import ast
import sys

import pytest

from distrun.resources import examples, templates

STEPS = {
    "custom_loop": """
        tf.distribute.MirroredStrategy strategy.num_replicas_in_sync GLOBAL_BATCH_SIZE
        experimental_distribute_dataset train_dist_dataset strategy.scope tf.train.Checkpoint
        compute_loss tf.nn.compute_average_loss train_step test_step strategy.run
        distributed_train_step strategy.reduce distributed_test_step train_accuracy test_loss
        manager.save""",
    "multi_worker": """
        tf.distribute.MultiWorkerMirroredStrategy global_batch_size dataset_fn input_context
        get_per_replica_batch_size dataset.shard multi_worker_model strategy.scope train_step
        step_fn strategy.run strategy.reduce step_in_epoch _is_chief write_filepath
        write_checkpoint_dir checkpoint_manager.save tf.train.latest_checkpoint checkpoint.restore
        tf.io.gfile.rmtree task_type task_id cluster_spec""",
    "parameter_server": """
        TFConfigClusterResolver tf.distribute.Server server.join GRPC_FAIL_FAST MinSizePartitioner
        variable_partitioner tf.distribute.ParameterServerStrategy dataset_fn strategy.scope step_fn
        replica_fn strategy.run strategy.reduce per_worker_dataset_fn
        distribute_datasets_from_function ClusterCoordinator create_per_worker_dataset
        coordinator.schedule coordinator.join coordinator.fetch eval_accuracy
        tf.train.CheckpointManager""",
    "keras_fit": """
        tf.distribute.MultiWorkerMirroredStrategy strategy.scope build_and_compile_cnn_model
        multi_worker_model.fit ModelCheckpoint BackupAndRestore steps_per_epoch auto_shard_policy
        callbacks validation_data SidecarEvaluator""",
    "data_service": """
        DispatchServer DispatcherConfig WorkerServer WorkerConfig dispatcher_address worker_address
        server.join ShardingPolicy service.distribute tf.distribute.MirroredStrategy strategy.scope
        model.fit auto_shard_policy""",
}
"""Names by which a reader of a tutorial recognizes its steps."""


@pytest.mark.parametrize("name", examples())
def test_an_example_is_short_and_complete(name: str) -> None:
    text = examples()[name].read_text()
    assert len(text.splitlines()) < 145
    assert max(map(len, text.splitlines())) <= 100
    assert [step for step in STEPS[name].split() if step not in text] == []
    imported = [
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert set(imported) - set(sys.stdlib_module_names) == {"numpy", "tensorflow"}
    keras = text.index('os.environ["TF_USE_LEGACY_KERAS"] = "1"  # ')
    assert keras < text.index("import tensorflow")


def test_every_example_has_a_template() -> None:
    assert set(examples()) == set(STEPS) <= set(templates())
    for name in examples():
        assert f"script: {name}.py\n" in templates()[name].read_text()
