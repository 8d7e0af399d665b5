# Writes, one after the other, normal_ of the given sizes with deviation 0.02 from one seed.
import sys

import numpy
import torch

torch.manual_seed(5)
tensors = [torch.empty(int(n)).normal_(0, 0.02) for n in sys.argv[2:]]
torch.cat(tensors).numpy().astype("<f4").tofile(sys.argv[1])
