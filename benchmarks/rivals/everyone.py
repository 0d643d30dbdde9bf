"""All rivals, set to one problem and one target."""

from dataclasses import replace

from benchmarks.rivals import chains, descent, refits
from benchmarks.rivals.newton import NOISE_SHARE, SPENT_IF_LOUD, NoisyNewton
from benchmarks.rivals.problems import Problem
from benchmarks.rivals.refits import RandomModel, Sisa
from benchmarks.rivals.removal import CertifiedRemoval
from benchmarks.rivals.rival import Rival, Setting

REMOVAL_AT_OUR_L2 = "certified removal, l2 as ours shipped"


def rivals_of(problem: Problem, *, own_regularisation: bool = True) -> list[Rival]:
    """`own_regularisation`: with the rivals that choose it themselves."""
    setting = problem.setting
    ours = chains.ours(setting)
    stateless = descent.without_secret_state(setting)
    newton, *newtons_at_our_l2 = newton_steps(setting)
    found: list[Rival] = [
        chains.learn_again(setting),
        refits.lbfgs(setting),
        refits.warm(setting),
        Sisa(setting=setting),
        descent.with_secret_state(setting, ours.noise_std),
        stateless,
        CertifiedRemoval(setting, problem.train),
        newton,
        chains.published(setting),
        chains.accounted_by_us(setting),
        chains.noisy_sgd(setting),
        ours,
        chains.all_rows(setting),
        chains.quiet(setting, stateless.noise_std),
        descent.negative_gradient(setting),
        descent.pseudo_label(setting),
        RandomModel(setting=setting),
        chains.nothing(setting),
        refits.nothing(setting),
    ]
    if own_regularisation:
        shipped = chains.as_shipped(setting)
        found += [refits.lbfgs_as_it_comes(setting), *refits.at_our_l2(shipped.l2)]
        weakly = replace(setting, l2=shipped.l2)
        found.append(CertifiedRemoval(weakly, problem.train, name="removal_shipped_l2", title=REMOVAL_AT_OUR_L2))
        found += [*newtons_at_our_l2, shipped]
    return found


def newton_steps(setting: Setting) -> list[NoisyNewton]:
    """At the l2 that all share; at the one of the service; and there with the noise of our chain."""
    ours, shipped = chains.ours(setting), chains.as_shipped(setting)
    weakly, at_our_l2 = replace(setting, l2=shipped.l2), "one noisy Newton step, l2 as ours shipped"
    return [
        NoisyNewton(setting, NOISE_SHARE * ours.noise_std),
        NoisyNewton(weakly, NOISE_SHARE * shipped.noise_std, name="newton_shipped_l2", title=at_our_l2),
        NoisyNewton(
            weakly,
            shipped.noise_std,
            spent=SPENT_IF_LOUD,
            name="newton_our_noise",
            title="one noisy Newton step, l2 and noise as ours shipped",
        ),
    ]
