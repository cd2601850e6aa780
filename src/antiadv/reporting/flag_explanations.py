"""What each flag means and what to do about it.

    EXPLAINED[rule]    →  Explanation, one for each rule of flags.py

docs/flags.md is made from these texts, and a report shows them with the signs that it raises.
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
        "the attack did not try any image on samples that the classifier gets right. Usually its budget is smaller "
        "than its first step: `nes` needs 2 · `probes` + 1 queries, 101 by default. This is a count, not an estimate.",
        "Nothing is known about these samples. No table counts them as robust, and no gain is computed from them.",
        "Allow the number of queries that the flag names, or choose an attack that needs fewer.",
    ),
    "near_chance": Explanation(
        "the classifier is right on no more clean images than guessing among its classes would be, by an exact "
        "one-sided test at 5 %, on 20 images or more. Every command that attacks checks this before, on its first "
        "images.",
        "The network does not get the input it was trained on: the labels, the range, the normalisation or the weights "
        "are wrong. Attacks on it say nothing about the network or a defence.",
        "Compare the clean accuracy with the published one. Check the order of the classes, that images are in [0, 1] "
        "and normalised inside the network, and that its weights were loaded.",
    ),
    "narrow_range": Explanation(
        "no pixel of any image is above 2/255. Every command that attacks checks this before. A report "
        "cannot check it, because a store does not hold the images.",
        "Bytes were divided by 255 twice. For the network all images are black, and every radius is far too large.",
        "Divide bytes by 255 once.",
    ),
    "preflight": Explanation(
        "the pre-flight of `antiadv check` found a mistake in the model: its scores depend on chance or on the rest of "
        "the batch, no gradient reaches some images, or another preparation of the images is clearly more accurate. "
        "`verdict` checks the first 100 images before it attacks.",
        "The network does not see the images as it was trained, or is not a function of one image. The numbers are of "
        "this mistake and not of the network.",
        "Write the line that the sign ends in, and run `antiadv check` again.",
    ),
    "adaptive_beats_white_box": Explanation(
        "on a defence, an adaptive attack (`transfer`, `bpda`, `eot`, `adaptive`, …) leaves fewer samples standing "
        "than the worst case of all attacks that follow the defence's own gradients in the same ball. Bare classifiers "
        "are not checked.",
        "The gradients of the defence mislead attacks, while its decisions have hardly changed. The accuracy under "
        "gradient attacks is not robustness.",
        "Trust the lower number. Check that the gradient attack was as strong as the adaptive one (as many steps, the "
        "same loss). If it was, report only the adaptive accuracy.",
    ),
    "black_box_beats_white_box": Explanation(
        "an attack that sees only scores or labels leaves fewer samples standing than the worst case of all attacks "
        "with gradients, on the same classifier and ball.",
        "An attacker with more access should do at least as well. Either the gradients are masked, or the white-box "
        "attack is too weak: too few steps, a loss that saturates, no restarts.",
        "Run `apgd` with both losses, or `autoattack`. If they are still weaker, the gradients are masked: run "
        "`adaptive`.",
    ),
    "zero_gradients": Explanation(
        "the gradient was exactly zero at least once for more than 5 % of the samples for which one was computed.",
        "The gradient of an ordinary network is almost never exactly zero. It is if a step cannot be differentiated, "
        "or if the softmax is so confident that float32 rounds the rest to zero. Then the attack has nothing to "
        "follow.",
        "Use a loss that does not saturate (`apgd:loss=dlr`), replace the step by a smooth one (`bpda`, `smooth`), or "
        "attack the bare classifier (`transfer`).",
    ),
    "fast_alarm": Explanation(
        "the attack `fast` ran AutoAttack on some samples. It does so where a short blind search came further than its "
        "gradients, where a gradient was exactly zero, and where a short step changed the margin otherwise than the "
        "gradient said. On a randomised defence it runs AutoAttack's version `rand`, APGD with both losses averaged "
        "over the random numbers, on every sample. This is a count, not an estimate. Samples that fell to AutoAttack "
        "early may be missing in it.",
        "The gradients of these samples do not lead to the nearest wrong class: they are masked. On robust networks "
        "without a defence hardly any sample raises it. On a randomised defence it says only which attack was run.",
        "Run `adaptive`, which attacks the network behind the defence.",
    ),
    "not_monotone": Explanation(
        "more samples stand at a larger radius than at the next smaller one, or with a larger budget of queries than "
        "with a smaller one, for the same attack and seed.",
        "Every image that fools at the smaller radius or budget is still allowed at the larger one. The attack did not "
        "find it again: its step sizes or its schedule do not fit, or the defence is noisy.",
        "Give the attack more steps and restarts at the larger radius, and take the worst case of both.",
    ),
    "unbounded_attack_fails": Explanation(
        "an attack without a limit of queries leaves significantly more than 1 % of the samples standing at an "
        "infinite radius, or at a radius of at least 0.5 in Linf. There every image can be made the same grey.",
        "At such a radius every classifier can be fooled. An attack that fails here is misled, and its accuracies at "
        "small radii are too high as well.",
        "Do not report this attack on this classifier until it reaches zero here. Try `adaptive`, and one of the "
        "decision-based attacks.",
    ),
    "changes_with_seed": Explanation(
        "the same cell has different accuracies with two seeds.",
        "The result depends on the random numbers of the attack or of the defence. One run is not the worst case.",
        "Use restarts or several seeds, and count a sample as robust only if it stands in all of them.",
    ),
    "changes_with_precision": Explanation(
        "the same cell leaves more samples standing if it is searched in a coarser precision than in a finer one. The "
        "opposite raises no flag, because the judge always decides in float32.",
        "Rounding hides what the attack relies on. A label-based attack follows the decision boundary of the precision "
        "that it searches in, which is not the judge's. An attack that compares two scores at a time loses small "
        "differences. The accuracy from the coarser search is too high.",
        "Trust the finer search, and run this attack in it. `docs/precision.md` lists the attacks for which this is "
        "known.",
    ),
    "too_few_digits": Explanation(
        "an attack was searched in a precision in which it is known to break fewer samples than in float32 "
        f"(`docs/precision.md`): {known_weak()}. It is not raised if a finer search of the same cell is stored.",
        "The attack compares two scores at a time and their difference is lost in rounding, or it follows a decision "
        "boundary that is not the judge's. Samples that it leaves standing may fall.",
        "Run it in float32; if time is short, on a few hundred `--samples`. Until then do not compare it with cells "
        "that were searched in another precision. This includes the bare classifier and the defended one.",
    ),
    "changes_with_draw": Explanation(
        "for more than 5 % of the samples, the judge's repeated predictions of the same image, clean or attacked, "
        "disagree on whether it is classified correctly.",
        "The defence is randomised, and its random numbers decide the result. An attacker who may try again will "
        "succeed. Plain gradients are those of a single draw.",
        "Run the attack through `eot`, with more samples until the accuracy no longer falls.",
    ),
    "changes_with_look": Explanation(
        "a sample that is misclassified without an attack, and therefore not attacked, gets another label when the "
        "judge predicts the same image again. This is a count, not an estimate.",
        "The classifier uses random numbers without declaring it: dropout that `eval()` does not switch off, noise of "
        "its own, or predictions that depend on the rest of the batch. It was judged by a single prediction, its runs "
        "cannot be repeated, and its own errors are counted as successes of the attack.",
        "Switch the randomness off. Or make it a defence that declares `randomised`: such a defence is judged by many "
        "draws with random numbers of its own, and attacked through `eot`.",
    ),
    "outside_the_ball": Explanation(
        "an attack that keeps a radius returned an image beyond it which fools the classifier. This is a count, not an "
        "estimate.",
        "Such an image does not count, so its sample stands. The attack may have another radius, norm or range of "
        "pixels in mind, and the robust accuracy says nothing about it.",
        "Let the attack return images inside the ball: project them, in the norm of the threat.",
    ),
    "labels_differ": Explanation(
        "the defence and the bare classifier give different labels to more than 1 % of the clean or of the attacked "
        "images. This is a count, not an estimate.",
        "The defence changes decisions, not only scores. On clean images users will notice. On attacked images "
        "`transfer` may miss what the defence changed.",
        "Compare the clean accuracies. If attacked labels differ, do not rely on `transfer` alone: run `bpda`, "
        "`smooth` or `adaptive`, which check success on the defence itself.",
    ),
    "worse_than_bare": Explanation(
        "fewer samples stand with the defence than on the bare classifier, in the worst case of the attacks that were "
        "run on both with the same threat and seed.",
        "The defence opens a new way in. An anti-adversary layer does this if a step is too long: x + γ leaves the "
        "class that f gives x, and g is wrong where f is right.",
        "Take shorter steps, or more of them: for the layer a smaller `step_size`, or `steps=2` instead of one. Check "
        "the clean accuracies, which may fall too.",
    ),
}
