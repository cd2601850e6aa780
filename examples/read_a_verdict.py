"""Ask what a defence is worth on your model and images, and read the answer. About 10 seconds on a CPU.

`verdict` attacks the model without and with the defence: by scores, by gradients, and by an attacker who knows the
defence. The defence here rounds the probabilities to one digit. That hides the gradients and changes no prediction, so
a flag is raised and the third attacker loses nothing. Four images show the parts of the answer; use several hundred.
"""

import antiadv

model = antiadv.models.load("compact:trades")
data = antiadv.data.load("cifar10")
x, y = data.images(range(4)), data.labels(range(4))

verdict = antiadv.verdict(model, x, y, "rounded_scores:digits=1", minutes=1, ball=antiadv.Linf(8 / 255), queries=30)

print(verdict.sentence)
print()
for row in verdict.rows:
    gain = "" if row.gain is None else f"   gain {100 * row.gain.value:+.1f} points, p = {row.gain.p:.2g}"
    print(f"{row.cell.attack:22} {row.cell.defence:24} robust accuracy {row.robust}{gain}")
print()
print(f"Flags raised: {', '.join(flag.name for flag in verdict.flags) or 'none'}")
print(verdict.cost)
