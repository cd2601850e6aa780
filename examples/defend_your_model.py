"""Put the anti-adversary layer in front of a classifier, and look at what it changes. About 2 seconds on a CPU.

Any `nn.Module` works if it takes images in [0, 1], returns logits and is in eval mode. Here it is a small robust
network that comes with the package.
"""

import torch

import antiadv

model = antiadv.models.load("compact:trades")
data = antiadv.data.load("cifar10")
x, y = data.images(range(64)), data.labels(range(64))

# K = 2 steps of α = 0.15. Nothing is trained, and the weights of `model` stay as they are.
defended = antiadv.AntiAdversary(model, steps=2, step_size=0.15)

with torch.no_grad():
    before, after = model(x), defended(x)

clean_before = (before.argmax(1) == y).double().mean().item()
clean_after = (after.argmax(1) == y).double().mean().item()
same_label = (before.argmax(1) == after.argmax(1)).double().mean().item()
raised = (after.softmax(1).amax(1) > before.softmax(1).amax(1)).double().mean().item()

print(f"clean accuracy: {clean_before:.1%} without the layer, {clean_after:.1%} with it")
print(f"same prediction: {same_label:.1%} of the images")
print(f"higher confidence: {raised:.1%} of the images")
