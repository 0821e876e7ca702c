"""The conditions of the LinRec paper, read off the explicit B' = Q_rho K_rho^T."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from linrec import ops
from linrec.types import InputError
from tests.ops.cases import LINEAR, Case, assert_close, attend, decay_of, random_case

EITHER_WAY = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
FACTORED = [name for name in LINEAR if name != "linrec-decay"]

CASES = st.builds(
    lambda length, seed, padding, scale: scaled(random_case(length, seed, padding=padding), scale),
    st.integers(1, 80),
    st.integers(0, 2**31),
    st.sampled_from(["none", "end", "random"]),
    st.floats(0.01, 30),
)


def scaled(case: Case, scale: float) -> Case:
    return replace(case, q=scale * case.q, k=scale * case.k)


def non_negative(case: Case) -> Case:
    return replace(case, q=case.q.abs(), k=case.k.abs())


def matrix(mechanism: str, case: Case, causal: bool) -> Tensor:
    return ops.attention_matrix(
        mechanism, case.q, case.k, keep=case.keep, causal=causal, **decay_of(mechanism, case)
    )


@EITHER_WAY
@pytest.mark.parametrize("mechanism", ["linrec", "linrec-decay", "linrec-without-elu"])
@settings(max_examples=40)
@given(case=CASES)
def test_rows_sum_to_at_most_one(mechanism, causal, case) -> None:
    """Condition (3), by Cauchy-Schwarz; it holds for the sum of magnitudes too."""
    assert matrix(mechanism, case, causal).abs().sum(-1).max() <= 1 + 1e-9


@EITHER_WAY
@pytest.mark.parametrize("mechanism", ["softmax", "efficient", "linear-transformer"])
@settings(max_examples=20)
@given(case=CASES)
def test_rows_of_the_others_are_distributions(mechanism, causal, case) -> None:
    actual = matrix(mechanism, case, causal)
    assert actual.min() >= 0
    sums = actual.sum(-1)[case.kept[:, None].expand(actual.shape[:3])]
    assert sums.max() <= 1 + 1e-9
    if mechanism != "linear-transformer":  # its features may all be zero, and then so is the row
        assert sums.min() >= 1 - 1e-9


@EITHER_WAY
@pytest.mark.parametrize("mechanism", list(ops.MECHANISMS))
@settings(max_examples=10)
@given(case=CASES)
def test_non_negative_where_the_feature_map_is(mechanism, causal, case) -> None:
    """ELU relaxes Condition (2) below zero, and only there. Up to the last bit of a subtraction."""
    assert matrix(mechanism, non_negative(case), causal).min() >= -1e-15


def test_elu_relaxes_non_negativity() -> None:
    assert matrix("linrec", random_case(20), False).min() < -0.01


@settings(max_examples=30)
@given(case=CASES)
def test_bayes_factorisation(case) -> None:
    """B'_ik = sum_j Pr(B_ij) Pr(A_ik | B_ij): Q_rho_ij, and K_rho_kj that is the same for all i."""
    case = non_negative(case)
    query, key = ops.factors("linrec", case.q, case.k, keep=case.keep)
    assert query.shape == key.shape == case.q.shape
    for probability in (query, key):
        assert probability.min() >= 0
        assert probability.max() <= 1
    assert query.sum(-1).max() <= 1 + 1e-12  # over the latent features
    assert key.sum(-2).max() <= 1 + 1e-12  # over the events, given one feature
    by_hand = torch.einsum("bhij,bhkj->bhik", query, key)
    assert_close(matrix("linrec", case, False), by_hand, 1e-12)


@pytest.mark.parametrize("padding", ["none", "end", "random", "all"])
@pytest.mark.parametrize("mechanism", FACTORED)
def test_the_factors_make_the_matrix(mechanism, padding) -> None:
    case = random_case(40, seed=1, padding=padding)
    query, key = ops.factors(mechanism, case.q, case.k, keep=case.keep)
    assert_close(query @ key.mT, matrix(mechanism, case, False))


@pytest.mark.parametrize("mechanism", ["softmax", "linrec-decay"])
def test_what_does_not_factor_says_so(mechanism) -> None:
    case = random_case(4)
    with pytest.raises(InputError, match="attention_matrix"):
        ops.factors(mechanism, case.q, case.k)


@pytest.mark.parametrize("padding", ["none", "random"])
@EITHER_WAY
@pytest.mark.parametrize("mechanism", list(ops.MECHANISMS))
def test_the_matrix_makes_the_output(mechanism, causal, padding) -> None:
    case = random_case(70, seed=2, padding=padding)
    explicit = matrix(mechanism, case, causal)
    assert explicit.shape == (3, 2, 70, 70)
    assert_close(explicit @ case.v, attend(mechanism, case, causal))
    unseen = ~(case.kept[:, :, None] & case.kept[:, None])
    if causal:
        unseen = unseen | torch.ones(70, 70, dtype=torch.bool).triu(1)
    assert (explicit[unseen[:, None].expand_as(explicit)] == 0).all()


def test_linrec_is_the_papers_equation() -> None:
    case = random_case(50, seed=3)
    query, key = F.elu(case.q), F.elu(case.k)
    rho1 = query / (8**0.5 * query.norm(dim=-1, keepdim=True))  # row by row
    rho2 = key / (50**0.5 * key.norm(dim=-2, keepdim=True))  # column by column
    assert_close(attend("linrec", case, False), rho1 @ (rho2.mT @ case.v), 1e-6)


@EITHER_WAY
def test_equal_events_share_the_attention_equally(causal) -> None:
    """By hand: N in 1/sqrt(N) is the number of kept events seen, so n equal ones weigh 1/n each."""
    keep = torch.tensor([[True, True, False, True], [False, True, False, False]])
    same = torch.full((2, 1, 4, 3), 2.0, dtype=torch.float64)
    actual = ops.attention_matrix("linrec", same, same, keep=keep, causal=causal)
    first = [[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0], [0] * 4, [1 / 3, 1 / 3, 0, 1 / 3]]
    if not causal:
        first[0] = first[1] = first[3]
    second = [[0] * 4, [0, 1, 0, 0], [0] * 4, [0] * 4]
    assert_close(actual[:, 0], torch.tensor([first, second], dtype=torch.float64), 1e-6)


def test_rowwise_is_the_released_formula() -> None:
    """As the authors' code has it, where nothing is padded: K transposed, normed over dim 2."""
    case = random_case(50, seed=4)
    query, key = F.elu(case.q), F.elu(case.k.transpose(-1, -2))
    query = torch.einsum("mnij,mni->mnij", query, 1 / torch.norm(query, dim=3, p=2))
    key = torch.einsum("mnij,mnj->mnij", key, 1 / torch.norm(key, dim=2, p=2))
    released = torch.matmul(query, torch.matmul(key, case.v)) / case.q.shape[-1] ** 0.5
    assert_close(attend("linrec-rowwise", case, False), released, 1e-6)


def test_the_ablations_leave_out_what_they_say() -> None:
    case = random_case(50, seed=5)
    scale = (8 * 50) ** -0.5
    without_norm = F.elu(case.q) @ F.elu(case.k).mT * scale
    assert_close(matrix("linrec-without-norm", case, False), without_norm)
    query, key = F.normalize(case.q, dim=-1), F.normalize(case.k, dim=-2)
    assert_close(matrix("linrec-without-elu", case, False), query @ key.mT * scale, 1e-6)
