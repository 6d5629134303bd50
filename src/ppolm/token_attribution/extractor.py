"""The text of a state and of an action, decoded from the table's token ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppolm.rollout.generated_text import token_texts

if TYPE_CHECKING:
    from ppolm.token_attribution.sa_pairs import SAPairs


def state_text(table: SAPairs, row: int) -> str:
    """Everything the policy had read before it chose the action: the prompt and the actions so far."""
    assert table.tokenizer is not None
    prompt = table.prompts[int(table.columns["prompt_idx"][row])]
    start = row - int(table.columns["step"][row])
    actions = table.columns["action_id"][start:row].tolist()
    text = table.tokenizer.decode_prompt(prompt)
    return text + table.tokenizer.decode(actions, after=prompt, keep_special=True) if actions else text


def action_text(table: SAPairs, row: int) -> str:
    """What the chosen token adds to the state's text."""
    assert table.tokenizer is not None
    prompt = table.prompts[int(table.columns["prompt_idx"][row])]
    before = [int(table.columns["action_id"][row - 1])] if int(table.columns["step"][row]) else prompt[-1:]
    return table.tokenizer.decode([int(table.columns["action_id"][row])], after=before, keep_special=True)


def action_texts(table: SAPairs) -> list[str]:
    """``action_text`` of every row."""
    assert table.tokenizer is not None
    sequences = table.sequences
    texts: list[str] = []
    for context, actions in zip(sequences.contexts, sequences.actions, strict=True):
        texts += token_texts(table.tokenizer, context.tolist(), actions.tolist())
    return texts
