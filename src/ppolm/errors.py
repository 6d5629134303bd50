"""Errors caused by a user's mistake or by the outside world. The command line prints them without a traceback."""


class PpolmError(Exception):
    """Base of every error whose message says what happened, what was expected and how to fix it."""


class ConfigError(PpolmError, ValueError):
    """A setting that cannot be used."""


class ModelError(PpolmError):
    """A model, adapter or tokenizer that cannot be loaded or used."""


class DataError(PpolmError, ValueError):
    """Prompts or rows that cannot be used."""


class RewardError(PpolmError):
    """A reward that could not be computed or cannot be trusted."""


class EngineError(PpolmError):
    """A sampling engine or server that cannot be used, or of which none is left."""


class FeedbackError(PpolmError):
    """A feedback store that cannot be opened, read or written."""


class NoStoreError(FeedbackError):
    """There is no feedback store at a place yet; somebody may be about to make one."""


class RunFolderError(PpolmError):
    """A run folder or checkpoint that cannot be written, read or resumed."""


class HubError(PpolmError):
    """The Hugging Face Hub could not be reached, or refuses what it was asked."""


class TrainingDivergedError(PpolmError):
    """Training produced non-finite numbers too many times in a row and was stopped."""


class CallbackError(PpolmError):
    """A callback that raised an exception; the run has been saved and ended."""


class ModelProcessError(PpolmError):
    """A model in a process of its own that cannot answer: it is busy, took too long, ended, or refuses."""


class ProcessesError(PpolmError):
    """Processes of one job that cannot find each other, or have drifted apart."""


class LostProcessError(ProcessesError):
    """An exchange that failed, because another process of the job has gone."""
