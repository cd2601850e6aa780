"""Attack one batch of images, and read what it cost. About 10 seconds on a CPU.

An attack is a text such as "pgd:steps=10". The query budget is enforced where the model is asked, and a judge that the
attack does not control decides whether each image is fooled. `antiadv list attacks` shows all attacks.
"""

import antiadv

model = antiadv.models.load("compact:trades")
defended = antiadv.AntiAdversary(model, steps=2, step_size=0.15)
data = antiadv.data.load("cifar10")
x, y = data.images(range(16)), data.labels(range(16))
ball = antiadv.Linf(8 / 255)  # each pixel may change by at most 8/255

outcomes = {
    "with gradients, no layer": antiadv.attack(model, x, y, "pgd:steps=10", ball),
    "with gradients, layer": antiadv.attack(defended, x, y, "pgd:steps=10", ball),
    "scores only, layer": antiadv.attack(defended, x, y, "square", ball, queries=50),
    "knows the layer": antiadv.attack(defended, x, y, "transfer:attack=(pgd:steps=10)", ball),
}

for name, outcome in outcomes.items():
    most = max(record.queries for record in outcome.records)
    print(f"{name:25} robust accuracy {outcome.robust_accuracy:.1%}, at most {most} queries for a sample")

perturbation = (outcomes["scores only, layer"].images - x).abs().max().item()
print(f"largest change of a pixel: {255 * perturbation:.1f} of 255")
