"""What a run is: model, loss, split and training. Read from recipes, flags and config.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, get_args

from pydantic import ConfigDict

from linrec.backbones.config import CONFIGS as MODEL_CONFIGS
from linrec.backbones.config import ModelConfig
from linrec.baselines.config import CONFIGS as BASELINE_CONFIGS
from linrec.baselines.config import BaselineConfig
from linrec.data.preparing.splitting import SplitConfig
from linrec.losses.config import CONFIGS as LOSS_CONFIGS
from linrec.losses.config import LossConfig
from linrec.settings import check, choose, either, setting, settings_of
from linrec.settings import parse as parse_part
from linrec.types import InputError, Seen, argument, parse_seen

Precision = Literal["float32", "bfloat16", "auto"]
LearningRateSchedule = Literal["constant", "linear"]
SeenSetting = Literal[Seen, "auto"]
Content = Mapping[str, Any]
AnyConfig = ModelConfig | BaselineConfig
"""A baseline is chosen in the place of a backbone."""
OF_BASELINES = ("seen", *settings_of(SplitConfig))
"""Settings of a training that a baseline, which has none, has too."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    epochs: int = setting(100, "Maximum number of epochs.", min=1)
    patience: int = setting(
        10, "Epochs without a better validation NDCG@10 before stopping.", min=1
    )
    learning_rate: float = setting(1e-3, "Learning rate of Adam.", above=0)
    schedule: LearningRateSchedule = setting(
        "constant",
        "Learning rate after the warm-up: constant, or falling to zero over the planned epochs.",
        choices=get_args(LearningRateSchedule),
    )
    warmup: int = setting(
        0,
        "Steps over which the learning rate rises to its full value; at most a quarter of all.",
        min=0,
    )
    weight_decay: float = setting(0.0, "L2 penalty of Adam.", min=0)
    clip_norm: float = setting(0.0, "Largest norm of the gradient; 0 leaves it as it is.", min=0)
    ema: float = setting(
        0.0,
        "Decay per step of a moving average of the weights, which is then evaluated and saved; "
        "0 keeps none.",
        min=0,
        below=1,
    )
    window: int = setting(2048, "Events per training window; longer histories are cut.", min=1)
    batch_tokens: int = setting(4096, "Events per batch, padding included.", min=1)
    unknown_time: float = setting(
        0.15,
        "Share of the targets whose time a model with time_gaps is not given in training.",
        min=0,
        max=1,
    )
    seen: SeenSetting = setting(
        "auto",
        "Items that the user has had, in validation and in all lists and figures of the run; auto "
        "keeps them where users often come back to one.",
        choices=("hide", "keep", "auto"),
    )
    weight: str | None = setting(
        None,
        "Context column, a number from 0 on, that says how much each target counts in the loss.",
    )
    seed: int = setting(0, "Random seed; the same seed gives the same model.", min=0, below=2**63)
    sparse_items: bool = setting(
        False,
        "Update only the embeddings of the items in a step, for losses that sample negatives.",
    )
    precision: Precision = setting(
        "float32",
        "Float type of the matrix products; auto takes the one that is faster on this machine.",
        choices=get_args(Precision),
    )
    final: bool = setting(
        False,
        "After the validated training, train again on all events for as many steps, for "
        "deployment; the figures stay those of the validated model.",
    )
    compile: bool = setting(False, "Train through torch.compile, which needs a C++ compiler.")
    device: str = setting("auto", "Device to train on: cpu, cuda, mps or auto.")

    def __post_init__(self) -> None:
        check(self)
        if self.sparse_items and self.weight_decay:
            raise InputError(
                "sparse_items leaves items alone that are not in a step, weight_decay would "
                "shrink them; leave one of the two out"
            )
        if self.sparse_items and self.clip_norm:
            raise InputError(
                "clip_norm needs the gradient of every item, sparse_items computes only those in a "
                "step; leave one of the two out"
            )


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    model: AnyConfig = field(default_factory=ModelConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    description: str = ""

    def __post_init__(self) -> None:
        if self.training.weight is not None and self.split.targets == "basket":
            raise InputError(
                f"{argument('targets', 'basket')} trains on one event of each basket in turn, so "
                f"it has no use for {argument('weight')}; leave one of the two out"
            )
        if self.training.sparse_items and not self.loss.samples_items:
            sampling = [name for name, config in LOSS_CONFIGS.items() if config.samples_items]
            raise InputError(
                f"the loss {self.loss.loss} has no use for sparse_items, because it moves every "
                f"item in every step; leave {argument('sparse_items')} out, or choose "
                f"{either([argument('loss', name) for name in sampling])}"
            )

    @property
    def window(self) -> int:
        """Events of one training window, never more than the encoder reads of a history."""
        return min(self.training.window, self.model.max_length or self.training.window)

    def seen_in(self, requested: Seen | None = None) -> Seen:
        """What a list does with seen items: as requested, else as the run says."""
        if requested is not None:
            return parse_seen(requested)
        return "keep" if self.training.seen == "keep" else "hide"

    def as_dict(self) -> dict[str, Any]:
        """As recipes and config.json have it: loss and split are parts of the training."""
        training = asdict(self.loss) | asdict(self.split) | asdict(self.training)
        if isinstance(self.model, BaselineConfig):
            training = {name: training[name] for name in OF_BASELINES}
        return {
            "model": asdict(self.model),
            "training": training,
            "description": self.description,
        }


def _names(*configs: Any) -> dict[str, None]:
    return dict.fromkeys(name for config in configs for name in settings_of(config))


SETTINGS: dict[str, Literal["model", "training"]] = {
    **dict.fromkeys(_names(*MODEL_CONFIGS.values()), "model"),
    **dict.fromkeys(_names(*LOSS_CONFIGS.values(), SplitConfig, TrainingConfig), "training"),
}
"""Every setting of a training and the part it belongs to; no name is in both."""


def parse(content: Content, source: str = "") -> RunConfig:
    """The run that a recipe or a config.json describes; what it leaves out has its default."""
    try:
        return _parse(content)
    except InputError as error:
        raise InputError(f"{source}: {error.args[0]}" if source else error.args[0]) from None


def with_settings(content: Content, settings: Content) -> dict[str, Any]:
    """The content of a recipe with some settings changed, each by its name alone."""
    of_models, _, of_runs = _known()
    _refuse_unknown(settings, of_runs)
    changed = {part: dict(content.get(part, {})) for part in ("model", "training")}
    for name, value in settings.items():
        changed["model" if name in of_models else "training"][name] = value
    return {**content, **changed}


def _parse(content: Content) -> RunConfig:
    from linrec.losses import loss_config  # here, to list the settings without torch

    of_models, of_losses, of_runs = _known()
    _refuse_unknown(content, ("model", "training", "description"))
    model, training = _section(content, "model"), _section(content, "training")
    _refuse_unknown(model, of_models, " in [model]")
    _refuse_unknown(training, [name for name in of_runs if name not in of_models], " in [training]")
    chosen = model_config(model)
    if isinstance(chosen, BaselineConfig):
        _refuse_training(chosen, training)
    loss = {name: training.pop(name) for name in of_losses if name in training}
    split = {name: training.pop(name) for name in settings_of(SplitConfig) if name in training}
    return RunConfig(
        model=chosen,
        loss=loss_config(**loss),
        split=parse_part(SplitConfig, split),
        training=parse_part(TrainingConfig, training),
        description=str(content.get("description", "")),
    )


def model_config(settings: Content) -> AnyConfig:
    """The complete settings of the backbone or baseline that `backbone` names."""
    from linrec.backbones.catalogue import configs as backbones

    family: dict[str, type[AnyConfig]] = {**backbones(), **BASELINE_CONFIGS}
    return choose("backbone", family, settings)


def _refuse_training(baseline: BaselineConfig, training: Content) -> None:
    for name in training:
        if name not in OF_BASELINES:
            raise InputError(
                f"the baseline {baseline.backbone} counts and is not trained, so it has no use for "
                f"{name}; leave {argument(name)} out, or choose {argument('backbone', 'sasrec')}"
            )


def _known() -> tuple[Collection[str], Collection[str], Collection[str]]:
    """The names of the settings of models, of losses and of whole runs."""
    from linrec.backbones.catalogue import configs as model_configs
    from linrec.losses.catalogue import configs as loss_configs

    models = [*model_configs().values(), *BASELINE_CONFIGS.values()]
    losses = loss_configs().values()
    return (
        _names(*models),
        _names(*losses),
        _names(*models, *losses, SplitConfig, TrainingConfig),
    )


def _section(content: Content, name: str) -> dict[str, Any]:
    """Without None, which older runs recorded for the settings of other backbones and losses."""
    section = content.get(name, {})
    if not isinstance(section, Mapping):
        raise InputError(f"{name} must be a table of settings, not {section!r}")
    return {key: value for key, value in section.items() if value is not None}


def _refuse_unknown(content: Content, known: Collection[str], where: str = "") -> None:
    for name in content:
        if name not in known:
            raise InputError(f"unknown setting {name!r}{where}; choose from {', '.join(known)}")
