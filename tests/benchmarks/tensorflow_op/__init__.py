"""What an allreduce costs more as a TensorFlow op than as a call.

python -m tests.benchmarks.tensorflow_op --json op.json
"""
