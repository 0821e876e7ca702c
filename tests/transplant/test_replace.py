"""replace_attention on torch's own modules: what it swaps, keeps, leaves and says."""

from __future__ import annotations

import copy
import io
import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import linrec
from linrec.nn import MultiheadAttention
from linrec.transplant import Adapter, NamedModule, huggingface
from linrec.types import InputError
from tests.ops.cases import LINEAR, assert_close

WIDTH, LENGTH = 16, 12
TORCHS = "torch.nn.modules.activation.MultiheadAttention"


def encoder(dropout: float = 0.0, **settings: bool) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    settings = {"batch_first": True, "norm_first": False} | settings
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout, **settings)
    # torch warns where it cannot have them
    nested = settings["batch_first"] and not settings["norm_first"]
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """x, what of it is padding, and the causal mask."""
    x = torch.randn(3, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1))
    padding = torch.arange(LENGTH) >= torch.tensor([[7], [LENGTH], [3]])
    return x, padding, torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where our forward ran; hooks would switch torch's fast path off by themselves."""
    seen: list[str] = []
    forward: Callable[..., object] = MultiheadAttention.forward

    def counted(self: MultiheadAttention, *args: object, **named: object) -> object:
        seen.append(self.where)
        return forward(self, *args, **named)

    monkeypatch.setattr(MultiheadAttention, "forward", counted)
    return seen


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("masks", ["none", "padding", "causal", "both"])
def test_softmax_changes_nothing(
    calls: list[str], masks: str, norm_first: bool, training: bool
) -> None:
    theirs = encoder(norm_first=norm_first).train(training)
    ours = copy.deepcopy(theirs)
    linrec.replace_attention(ours, "softmax")
    x, padding, causal = inputs()
    call = {
        "src_key_padding_mask": padding if masks in ("padding", "both") else None,
        "mask": causal if masks in ("causal", "both") else None,
    }
    with torch.inference_mode(not training), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, on nested tensors
        expected, actual = theirs(x, **call), ours(x, **call)
    real = ~padding if masks in ("padding", "both") else torch.ones_like(padding)
    assert_close(actual[real], expected[real], 1e-5)
    assert calls == ["layers.0.self_attn", "layers.1.self_attn"]


@pytest.mark.parametrize("mechanism", LINEAR)
@pytest.mark.parametrize("inference", [True, False])
def test_an_encoder_keeps_the_laws(calls: list[str], mechanism: str, inference: bool) -> None:
    model = encoder(dropout=0.1).eval()
    linrec.replace_attention(model, mechanism)
    x, padding, causal = inputs()
    with torch.inference_mode(inference):
        both = model(x, mask=causal, src_key_padding_mask=padding)
        alone = model(x[:1, :7], mask=causal[:7, :7])
        around = model(x, src_key_padding_mask=padding)
        short = model(x[:1, :7])
    assert_close(both[0, :7], alone[0], 1e-5)
    assert_close(around[0, :7], short[0], 1e-5)
    assert not torch.allclose(both[0, :6], around[0, :6])
    assert len(calls) == 8


@pytest.mark.parametrize("mechanism", [*LINEAR, "softmax"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_an_encoder_learns(mechanism: str, batch_first: bool) -> None:
    model = encoder(dropout=0.1, batch_first=batch_first).train()
    linrec.replace_attention(model, mechanism)
    x, padding, causal = inputs()
    target = x.roll(1, 1)  # what came before, which a causal model can tell
    x, target = (t if batch_first else t.transpose(0, 1) for t in (x, target))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (model(x, mask=causal, src_key_padding_mask=padding) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_bfloat16_and_autocast() -> None:
    model = encoder().to(torch.bfloat16)
    linrec.replace_attention(model)
    x, padding, _ = inputs()
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model(x.bfloat16(), src_key_padding_mask=padding).dtype == torch.bfloat16
    model = encoder()
    linrec.replace_attention(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.isfinite(model(x, src_key_padding_mask=padding)).all()


def test_the_report_names_both_lists() -> None:
    model = nn.ModuleDict(
        {
            "transformer": nn.Transformer(WIDTH, 2, 1, 1, 32, batch_first=True),
            "odd": nn.MultiheadAttention(16, 2, kdim=8),
        }
    )
    report = linrec.replace_attention(model)
    assert dict(report.replaced) == {
        "transformer.encoder.layers.0.self_attn": TORCHS,
        "transformer.decoder.layers.0.self_attn": TORCHS,
    }
    assert "cross attention" in report.skipped["transformer.decoder.layers.0.multihead_attn"]
    assert "another width" in report.skipped["odd"]
    assert str(report).splitlines() == [
        "2 replaced by linrec-decay",
        f"  transformer.encoder.layers.0.self_attn  {TORCHS}",
        f"  transformer.decoder.layers.0.self_attn  {TORCHS}",
        "2 left as they are",
        "  transformer.decoder.layers.0.multihead_attn  cross attention; linear mechanisms attend "
        "within one sequence",
        "  odd                                          keys or values of another width than the "
        "queries' (kdim, vdim)",
    ]


def test_a_whole_transformer_still_runs() -> None:
    model = nn.Transformer(WIDTH, 2, 1, 1, 32, batch_first=True)
    linrec.replace_attention(model)
    x, _, causal = inputs()
    assert model(x[:, :5], x, tgt_mask=causal, tgt_is_causal=True).shape == x.shape


def test_a_dry_run_changes_nothing() -> None:
    model = encoder()
    before = {name: type(part) for name, part in model.named_modules()}
    planned = linrec.replace_attention(model, dry_run=True)
    assert {name: type(part) for name, part in model.named_modules()} == before
    assert model.use_nested_tensor
    assert str(planned).startswith("2 would be replaced by linrec-decay")
    assert planned.replaced == linrec.replace_attention(model).replaced


def test_skip() -> None:
    model = encoder()
    report = linrec.replace_attention(model, skip=["layers.1.*"])
    assert list(report.replaced) == ["layers.0.self_attn"]
    assert report.skipped == {"layers.1.self_attn": "left out by skip"}
    assert isinstance(model.layers[1].self_attn, nn.MultiheadAttention)


def test_again_finds_nothing_more(recwarn: pytest.WarningsRecorder) -> None:
    model = encoder()
    linrec.replace_attention(model)
    again = linrec.replace_attention(model, "linrec")
    assert (dict(again.replaced), dict(again.skipped)) == ({}, {})
    assert not [w for w in recwarn if "nothing was replaced" in str(w.message)]


def test_weights_are_the_same_objects_and_checkpoints_load() -> None:
    model = encoder()
    before, saved = dict(model.named_parameters()), copy.deepcopy(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters())
    linrec.replace_attention(model)
    after = dict(model.named_parameters())
    assert all(after[name] is parameter for name, parameter in before.items())
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert {name.rpartition(".")[2] for name, p in after.items() if id(p) not in held} == {
        "decay_logit"
    }
    model.load_state_dict(saved)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    x, padding, _ = inputs()
    again = torch.load(file, weights_only=False)
    call = {"src_key_padding_mask": padding}
    assert torch.equal(again.eval()(x, **call), model.eval()(x, **call))


def test_one_module_in_two_places_stays_one() -> None:
    shared = nn.MultiheadAttention(WIDTH, 2)
    model = nn.ModuleList([shared, nn.Sequential(shared)])
    report = linrec.replace_attention(model)
    assert list(report.replaced) == ["0", "1.0"]
    assert model[0] is model[1][0]
    assert isinstance(model[0], MultiheadAttention)


class WithItsOwnForward(nn.MultiheadAttention):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


class OnlyRenamed(nn.MultiheadAttention):
    pass


class OddAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(2, 2)


def hooked() -> nn.Module:
    module = nn.MultiheadAttention(WIDTH, 2)
    module.register_forward_hook(lambda *_: None)
    return module


def parametrized() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.MultiheadAttention(WIDTH, 2), "in_proj_weight")


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (WithItsOwnForward(WIDTH, 2), "WithItsOwnForward has a forward of its own"),
        (hooked(), "it has hooks"),
        (parametrized(), "forward of its own|parametrized"),
        (OddAttention(), "OddAttention is not known to linrec"),
        (nn.MultiheadAttention(WIDTH, 2, add_zero_attn=True), "key that belongs to no event"),
    ],
)
def test_what_stays_says_why(module: nn.Module, reason: str) -> None:
    model = nn.Sequential(module)
    with pytest.warns(UserWarning, match="nothing was replaced"):
        report = linrec.replace_attention(model)
    assert not report.replaced
    assert model[0] is module
    assert list(report.skipped) == ["0"]
    assert any(text in report.skipped["0"] for text in reason.split("|"))


class AsLongAgo(nn.Module):
    """What transformers' attention once took."""

    is_cross_attention = False

    def forward(self, hidden_states: Tensor, layer_past: object = None) -> None: ...


class AsNow(AsLongAgo):
    def forward(self, hidden_states: Tensor, past_key_values: object = None) -> None: ...


@pytest.mark.parametrize("adapter", [huggingface.BERT, huggingface.GPT2])
def test_an_older_transformers_stays(adapter: Adapter) -> None:
    def reason(module: nn.Module, name: str = "attn") -> str:
        return adapter.why_not(NamedModule(name, nn.Sequential(), "attn", module)) or ""

    assert "an older transformers" in reason(AsLongAgo())
    assert reason(AsNow()) == ""
    relative = AsNow()
    relative.position_embedding_type = "relative_key"  # type: ignore[assignment]
    pruned = AsNow()
    pruned.pruned_heads = {1}  # type: ignore[assignment]
    assert "pruned" in reason(pruned)
    if adapter is huggingface.BERT:
        assert "relative positions" in reason(relative)
        assert "cross attention" in reason(AsNow(), "layer.0.crossattention.self")


def test_a_subclass_with_torchs_forward_is_taken() -> None:
    report = linrec.replace_attention(nn.Sequential(OnlyRenamed(WIDTH, 2)))
    assert report.replaced["0"].endswith("OnlyRenamed")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: linrec.replace_attention(object()), "takes a torch.nn.Module, not a object"),
        (lambda: linrec.replace_attention(nn.MultiheadAttention(16, 2)), "is itself the attention"),
        (lambda: linrec.replace_attention(encoder(), "lin"), "unknown attention 'lin'"),
        (lambda: linrec.replace_attention(encoder(), causal="no"), "causal must be"),
        (lambda: linrec.replace_attention(encoder(), skip=["decoder.*"]), "skip names 'decoder"),
    ],
)
def test_mistakes(call: Callable[[], object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        call()


def test_a_mask_that_cannot_be_applied_names_the_module() -> None:
    model = encoder()
    linrec.replace_attention(model)
    x, _, _ = inputs()
    mask = torch.zeros(LENGTH, LENGTH).fill_diagonal_(float("-inf"))
    with pytest.raises(InputError, match=r"^layers\.0\.self_attn: the mask is neither"):
        model(x, mask=mask)


def test_causality_can_be_overruled() -> None:
    x, _, causal = inputs()
    always, never, auto = (encoder().eval() for _ in range(3))
    linrec.replace_attention(always, causal=True)
    linrec.replace_attention(never, causal=False)
    linrec.replace_attention(auto)
    assert_close(always(x), auto(x, mask=causal), 1e-5)
    assert_close(never(x, mask=causal), auto(x), 1e-5)


def test_nested_tensors_get_a_sentence() -> None:
    """Where somebody puts our module into a ready encoder by hand."""
    model = encoder().eval()
    for layer in model.layers:
        layer.self_attn = MultiheadAttention.from_torch(layer.self_attn)
    x, padding, _ = inputs()
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InputError, match="enable_nested_tensor=False"):
            model(x, src_key_padding_mask=padding)


def test_nothing_but_torch_is_imported() -> None:
    code = (
        "import sys, linrec; linrec.replace_attention; linrec.nn.MultiheadAttention;"
        "print(sorted({'polars', 'pydantic', 'lightning_fabric', 'transformers', 'recbole', "
        "'rectools', 'replay', 'linrec.data', 'linrec.layers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_name_alone_imports_no_torch() -> None:
    code = "import sys, linrec; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
