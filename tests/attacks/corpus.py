"""All attacks, by name."""

from attacks import at_one_shape, on_memory, on_output, on_timing

ATTACKS = {
    attack.name: attack for module in (on_output, on_memory, on_timing, at_one_shape) for attack in module.ATTACKS
}
