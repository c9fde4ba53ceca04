"""One description of a training run, for the simulator, the emulation and the engine.

The paper's letters are the field names (Section 3.1): (p, t, d) the pipeline-, tensor- and data-parallel sizes, v model
chunks per device, b the microbatch size, B the global batch size; c is the context-parallel size, which came later.
Every field has a sentence about itself, which command-line help and documentation show, and says what it may be
(`fields.py`). Everything is checked when it is made; an impossible value raises
`ConfigurationError("<field>=<value> ...; needs <rule>; try <fix>")`.
"""

from ptdp_core.config.model import LAYER_LETTERS, LayerKind, ModelConfig, padded_vocab
from ptdp_core.config.parallel import OFFLOADED, ParallelConfig
from ptdp_core.config.training import TrainingConfig, attention_kernel, kept
from ptdp_core.config.words import DTYPES, KEYS_ELSEWHERE, in_todays_words
