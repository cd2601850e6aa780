"""What each warning sign means and what to do about it, in words: for docs/flags.md, which is made of this, and for the
report, which says it beside the signs it shows.

EXPLAINED[rule]    →  Explanation: when it is raised, what it means, what to do; a rule of flags.py each
"""

from __future__ import annotations

from dataclasses import dataclass

from antiadv.reporting.select import known_weak


@dataclass(frozen=True)
class Explanation:
    raised: str
    means: str
    todo: str


EXPLAINED = {
    "not_attacked": Explanation(
        "the attack tried no image of its own on samples that the classifier gets right, mostly since the budget is "
        "smaller than its first step: `nes` needs 2 · `probes` + 1 queries, 101 by default. This is a count, not an "
        "estimate.",
        "Nothing is known of these samples. No table counts them as robust, and no gain is made of them.",
        "Grant the number of queries that the flag names, or choose an attack that needs fewer.",
    ),
    "near_chance": Explanation(
        "the classifier is right on no more clean images than a guess among its classes would be, by an exact "
        "one-sided test at 5 %, on 20 images or more. `verdict` looks before it attacks.",
        "The network does not see what it was trained on: other labels, another range or normalisation, other weights. "
        "What attacks find on it says nothing of it, and nothing of a defence.",
        "Compare the clean accuracy with what is known of the network. Look at the order of the classes, at whether "
        "images lie in [0, 1] and are normalised inside the network, and at whether its weights were loaded.",
    ),
    "narrow_range": Explanation(
        "no pixel of any image is above 2/255. `verdict` and `antiadv attack` look before they attack; a store does "
        "not hold the images, so a report cannot.",
        "Bytes were divided by 255 twice. To the network all images are black, and every radius is far too large.",
        "Divide bytes by 255 once.",
    ),
    "adaptive_beats_white_box": Explanation(
        "on a defence, an attack that goes round it (`transfer`, `bpda`, `eot`, `adaptive`, …) leaves fewer samples "
        "standing than the worst case of all attacks that follow its own gradients in the same ball. Bare classifiers "
        "are left out: there is nothing to go round.",
        "The defence's gradients lead attacks astray, while its decisions have hardly moved. The accuracy under the "
        "gradient attacks is not robustness.",
        "Believe the lower number. Make sure that the gradient attack was as strong as the one inside (as many steps, "
        "the same loss); if it was, report the adaptive accuracy and leave the other out.",
    ),
    "black_box_beats_white_box": Explanation(
        "an attack that sees only scores or labels leaves fewer samples standing than the worst case of all attacks "
        "with gradients, on the same classifier and ball.",
        "Whoever sees more should do no worse. Either the gradients are masked, or the white-box attack is too weak: "
        "too few steps, a loss that saturates, no restarts.",
        "Run `apgd` with both losses, or `autoattack`. If they still lose, the gradients are masked: run `adaptive`.",
    ),
    "zero_gradients": Explanation(
        "the gradient was exactly zero at least once for more than 5 % of the samples of which one was asked.",
        "An ordinary network almost never has a gradient of exactly zero. A step that cannot be differentiated, or a "
        "softmax so sure of itself that float32 rounds the rest away, gives the attack nothing to follow.",
        "Use a loss on scores that does not saturate (`apgd:loss=dlr`), replace the step by a smooth one (`bpda`, "
        "`smooth`), or attack the bare classifier (`transfer`).",
    ),
    "not_monotone": Explanation(
        "more samples stand at a larger radius than at the next smaller one, or against a larger budget of queries "
        "than a smaller one, for the same attack and seed.",
        "Whatever fools at the smaller radius or budget is still allowed at the larger one. The attack did not find it "
        "again: its step sizes or its schedule do not fit, or the defence is noisy.",
        "Give the attack more steps and restarts at the larger radius, and take the worst case over both.",
    ),
    "unbounded_attack_fails": Explanation(
        "the radius is infinite, or at least 0.5 in Linf, where every image can be made the same grey, the queries are "
        "not limited, and significantly more than 1 % of the samples stand.",
        "At such a radius every classifier can be fooled. An attack that fails here is being misled, and its numbers "
        "at small radii are too good as well.",
        "Do not report this attack on this classifier before it reaches zero here. Try `adaptive`, and one of the "
        "decision-based attacks.",
    ),
    "changes_with_seed": Explanation(
        "the same cell under two seeds leaves different accuracies.",
        "The result depends on the luck of the attack's, or the defence's, dice. One run is not the worst case.",
        "Use restarts, or several seeds, and count a sample as robust only where it stands in all of them.",
    ),
    "changes_with_precision": Explanation(
        "the same cell leaves more samples standing where it was searched in a coarser precision than in a finer one. "
        "The other way round is no sign: the judge looks in float32, whatever searched.",
        "Rounding hides from the attack what it goes by. One on labels walks along the boundary of the precision that "
        "it searches in, which is not the judge's; one that compares two scores at a time loses small differences. The "
        "coarser number is too good.",
        "Believe the finer search, and run this attack in it. `docs/precision.md` says of which attacks it is known.",
    ),
    "too_few_digits": Explanation(
        "an attack was searched in a precision in which it is known to break less than in float32 "
        f"(`docs/precision.md`): {known_weak()}. Where a finer search of the same cell stands beside it, it is not "
        "raised.",
        "It compares two scores at a time, and the difference drowns in rounding, or walks along a boundary that is "
        "not the judge's. What it leaves standing may fall.",
        "Run it in float32: in `--samples` of a few hundred, if time is short. Until then do not compare it with what "
        "was searched in another precision, not the bare classifier with the defended one either.",
    ),
    "changes_with_draw": Explanation(
        "for more than 5 % of the samples the judge's looks at the same image, clean or attacked, disagree on whether "
        "the answer is right.",
        "The defence is randomised, and its dice decide. An attacker who may try again will get through; plain "
        "gradients are those of one draw.",
        "Run the attack through `eot`, with more samples until the accuracy no longer falls.",
    ),
    "changes_with_look": Explanation(
        "a sample that is wrong from the start, and so not attacked, has another label when the judge looks at the "
        "same image again. This is a count, not an estimate.",
        "The classifier rolls dice without saying so: dropout that `eval()` does not reach, noise of its own, or "
        "answers that depend on what else is in the batch. It was judged by one look, no run can be made again, and "
        "its own errors are counted as the attack's.",
        "Turn the dice off; or make them a defence that says it is `randomised`, which is judged by many looks with "
        "dice of its own, and attacked through `eot`.",
    ),
    "labels_differ": Explanation(
        "the defence and the bare classifier give different labels to more than 1 % of the clean, or of the attacked, "
        "images. This is a count, not an estimate.",
        "The defence changes decisions, not only scores. On clean images that is a change of the product. On attacked "
        "images `transfer` may miss what the defence moved.",
        "Compare the clean accuracies. Where attacked labels differ, do not rest on `transfer` alone: run `bpda`, "
        "`smooth` or `adaptive`, which test success on the defence itself.",
    ),
    "worse_than_bare": Explanation(
        "in the worst case of the attacks that both met, with one threat and one seed, fewer samples stand behind the "
        "defence than on the bare classifier.",
        "The defence opens a way in that was not there. An anti-adversary layer does so where a step is too long: "
        "x + γ leaves the class that f gives x, and g errs where f is right.",
        "Take shorter steps, or more of them: for the layer a smaller `step_size`, or `steps=2` in place of one. Look "
        "at the clean accuracies, which may fall too.",
    ),
}
