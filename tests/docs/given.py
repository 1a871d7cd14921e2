"""What the pages of the docs take for granted, page by page: the names that a reader has in a loop of their own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from headway.selection import Sources, SourceSampler, Tagged
from tests.analysis.stores import write_mixed_store

ENVS, STEPS = 4, 16


def training() -> dict[str, Any]:
    """A model, its optimizer, labels of two sources, and a loader that names the source."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    web, books = (TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)), torch.full((64,), n)) for n in range(2))
    return {
        "torch": torch,
        "F": functional,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "labels": torch.cat([web.tensors[1], books.tensors[1]]),
        "sources": torch.arange(2).repeat_interleave(64),
        "loader": DataLoader(ConcatDataset([web, books]), 32, shuffle=True),
    }


def cart_poles() -> dict[str, Any]:
    """Vector environments, their spaces, a random policy and two rollouts of theirs."""
    env = gymnasium.make_vec("CartPole-v1", ENVS)
    rng = np.random.default_rng(0)

    def policy(obs: Any) -> Any:
        return rng.integers(2, size=len(obs))

    def rollout() -> tuple[Any, ...]:
        obs = rng.normal(size=(ENVS * STEPS, 4)).astype(np.float32)
        return obs, policy(obs), obs + 0.01, torch.zeros(ENVS * STEPS)

    obs, actions, next_obs, _ = rollout()
    return {
        "env": env,
        "envs": env,
        "num_envs": ENVS,
        "observation_space": env.single_observation_space,
        "action_space": env.single_action_space,
        "policy": policy,
        "rollouts": [rollout(), rollout()],
        "obs": obs,
        "actions": actions,
        "next_obs": next_obs,
        "terminated": np.arange(ENVS * STEPS) >= ENVS * (STEPS - 1),
        "truncated": np.zeros(ENVS * STEPS, bool),
        "environment_numbers": np.tile(np.arange(ENVS), STEPS),
        "generator": torch.Generator().manual_seed(0),
    }


def _tianshou() -> Any:
    tianshou = pytest.importorskip("tianshou")
    common = importlib.import_module("tianshou.utils.net.common")
    discrete = importlib.import_module("tianshou.utils.net.discrete")
    reinforce = importlib.import_module("tianshou.algorithm.modelfree.reinforce")
    factory = importlib.import_module("tianshou.algorithm.optim").AdamOptimizerFactory
    net = common.Net(state_shape=(4,), hidden_sizes=[8])
    policy = reinforce.ProbabilisticActorPolicy(
        actor=discrete.DiscreteActor(preprocess_net=net, action_shape=2),
        dist_fn=lambda logits: torch.distributions.Categorical(logits=logits),
        action_space=gymnasium.spaces.Discrete(2),
        action_scaling=False,
    )
    return tianshou.algorithm.PPO(
        policy=policy, critic=discrete.DiscreteCritic(preprocess_net=net), optim=factory(lr=1e-3)
    )


def cleanrl() -> dict[str, Any]:
    """The variables of a loop in CleanRL's style after a rollout, [steps, environments, ...]."""
    torch.manual_seed(0)
    return cart_poles() | {
        "ppo": _tianshou(),
        "obs": torch.randn(STEPS, ENVS, 4),
        "actions": torch.randint(2, (STEPS, ENVS)),
        "dones": torch.zeros(STEPS, ENVS),
        "rewards": torch.ones(STEPS, ENVS),
        "next_obs": torch.randn(ENVS, 4),
        "next_done": torch.zeros(ENVS),
    }


def rlexplore() -> dict[str, Any]:
    """What a loop that is written for rllte has: a step, and the samples of a rollout."""
    torch.manual_seed(0)
    shape = (STEPS, ENVS)
    samples = {
        "observations": torch.randn(*shape, 4),
        "actions": torch.randint(2, shape),
        "rewards": torch.ones(shape),
        "terminateds": torch.zeros(shape),
        "truncateds": torch.zeros(shape),
        "next_observations": torch.randn(*shape, 4),
    }
    step = {name: values[0] for name, values in samples.items()}
    return cart_poles() | step | {"samples": samples, "n_steps": STEPS}


def gymnasium_loop() -> dict[str, Any]:
    """Actions for eight environments, and a learner."""
    return {"actions": np.zeros(8, np.int64), "learn_from": lambda rewards: None}


def sources(package: str) -> dict[str, Any]:
    """Two sources of samples that can be read by index and one after the other, and what trains on them."""
    pytest.importorskip(package)
    names = training()
    web, books = ([(torch.randn(4), torch.tensor(n % 3)) for n in range(64)] for _ in range(2))
    return names | {"web": web, "books": books, "net": names["model"]}


def torchdata_nodes() -> dict[str, Any]:
    """The same as nodes, and what the page on plain PyTorch has made."""
    names = sources("torchdata")
    nodes = importlib.import_module("torchdata.nodes")
    parts = {"web": names["web"], "books": names["books"]}
    sampler = SourceSampler(Sources.joined(parts))
    data = Tagged(ConcatDataset(list(parts.values())), sampler.sources)
    own = {f"{name}_node": nodes.IterableWrapper(part) for name, part in parts.items()}
    return names | own | {"sampler": sampler, "data": data}


def hugging_face() -> dict[str, Any]:
    """A small GPT-2, settings of its Trainers, and datasets with tokens and with texts."""
    transformers, trl, datasets = (pytest.importorskip(name) for name in ("transformers", "trl", "datasets"))
    tokenizers = pytest.importorskip("tokenizers")
    words = [f"w{number}" for number in range(16)]
    vocabulary = {word: number for number, word in enumerate([*words, "<pad>", "<eos>"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="<pad>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    settings = {"max_steps": 2, "per_device_train_batch_size": 4, "report_to": [], "use_cpu": True}
    torch.manual_seed(0)
    tokens = torch.randint(16, (32, 8)).tolist()
    rows = {"input_ids": tokens, "labels": tokens}
    texts = {"text": [" ".join(words[token] for token in row) for row in tokens]}
    sizes = {"vocab_size": 18, "n_positions": 32, "n_embd": 8, "n_layer": 1, "n_head": 2}
    gpt2 = transformers.GPT2Config(**sizes, bos_token_id=17, eos_token_id=17)
    return {
        "model": transformers.GPT2LMHeadModel(gpt2),
        "args": transformers.TrainingArguments("trainer", **settings),
        "config": trl.SFTConfig("sft", **settings, bf16=False, gradient_checkpointing=False, max_length=16),
        "tokenizer": transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>"
        ),
        "web": datasets.Dataset.from_dict(rows),
        "books": datasets.Dataset.from_dict(rows),
        "d": datasets.Dataset.from_dict({**rows, "source": [n % 2 for n in range(32)]}),
        "web_texts": datasets.Dataset.from_dict(texts).to_iterable_dataset(),
        "book_texts": datasets.Dataset.from_dict(texts).to_iterable_dataset(),
    }


def stored_runs() -> dict[str, Any]:
    """A run store in the folder at hand."""
    write_mixed_store(Path("runs"), epochs=3, seeds=1)
    return {}


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "analysis.md": stored_runs,
    "howto/accelerate.md": partial(sources, "accelerate"),
    "howto/gymnasium.md": gymnasium_loop,
    "howto/lightning.md": partial(sources, "lightning"),
    "howto/rlexplore.md": rlexplore,
    "howto/torchdata.md": torchdata_nodes,
    "howto/trainers.md": cleanrl,
    "howto/transformers.md": hugging_face,
    "intrinsic.md": cart_poles,
}
