"""Callbacks of trainers: each names the steps of a training and records some of them, as
`apex_cuda.Steps` does.

Each module imports its framework, so import the one that you need:

* ``from apex_cuda.callbacks.lightning import StepRecorder``
* ``from apex_cuda.callbacks.transformers import StepRecorder``
* ``from apex_cuda.callbacks.keras import StepRecorder``
"""
