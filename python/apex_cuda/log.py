"""Logs the verdict, the accounts and the findings of a session into an experiment tracker.

Each function takes what the tracker gives and imports nothing, except `to_mlflow` and `to_wandb`
without a run. Numbers are those of `Session.metrics`, below ``apex/``.
"""

from typing import Any, Optional

from ._findings import saves
from ._session import Session


def to_tensorboard(session: Session, writer: Any, step: Optional[int] = None) -> None:
    """Adds scalars and the report as text.

    Args:
        session: the session.
        writer: a ``SummaryWriter`` of ``torch.utils.tensorboard`` or of ``tensorboardX``.
        step: the step of the training that they belong to.
    """
    for name, value in session.metrics().items():
        writer.add_scalar(f"apex/{name}", value, step)
    writer.add_text("apex/report", session.markdown(), step)


def to_mlflow(session: Session, run_id: Optional[str] = None, step: Optional[int] = None) -> None:
    """Logs metrics, the verdict as the tag ``apex.verdict``, and the report as the artifact
    ``apex/report.md``.

    Args:
        session: the session.
        run_id: the run; without it, the active one.
        step: the step of the training that the metrics belong to.
    """
    import mlflow

    numbers = {f"apex/{name}": value for name, value in session.metrics().items()}
    mlflow.log_metrics(numbers, step=step, run_id=run_id)
    client, run = mlflow.MlflowClient(), run_id or mlflow.active_run().info.run_id
    client.set_tag(run, "apex.verdict", " ".join(session.verdict()))
    client.log_text(run, session.markdown(), "apex/report.md")


def to_wandb(session: Session, run: Any = None) -> None:
    """Adds numbers and the verdict to the run's summary, and the findings as a table.

    Args:
        session: the session.
        run: the run; without it, the active one.
    """
    import wandb

    run = run or wandb.run
    if run is None:
        raise ValueError("there is no active run: call wandb.init() first, or give one")
    findings = session.findings()
    numbers = {f"apex/{name}": value for name, value in session.metrics().items()}
    run.summary.update({**numbers, "apex/verdict": " ".join(findings.verdict)})
    columns = ["rule", "finding", "change", "saves"]
    rows = [[one["rule"], one["title"], one["change"], saves(one)] for one in findings]
    run.log({"apex/findings": wandb.Table(columns=columns, data=rows)})
