"""Ask what a defence is worth on your model and images, and read the answer. About 15 seconds on a CPU.

`verdict` attacks the model without and with the defence: by scores, by gradients, and by an attacker who knows the
defence. Four images are enough to show the parts of the answer, and too few to believe it. Use several hundred.
"""

import antiadv

model = antiadv.models.load("compact:trades")
data = antiadv.data.load("cifar10")
x, y = data.images(range(4)), data.labels(range(4))

verdict = antiadv.verdict(model, x, y, "anti_adversary", minutes=1, ball=antiadv.Linf(8 / 255), queries=30)

print(verdict.sentence)
print()
for row in verdict.rows:
    gain = "" if row.gain is None else f"   gain {100 * row.gain.value:+.1f} points, p = {row.gain.p:.2g}"
    print(f"{row.cell.attack:22} {row.cell.defence:15} robust accuracy {row.robust}{gain}")
print()
print(f"Flags raised: {', '.join(flag.name for flag in verdict.flags) or 'none'}")
print(verdict.cost)
