"""A vision-language model small enough to be made, saved and run in a test: a random Llava whose answers are action tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

VOCABULARY = 320
IMAGE_TOKEN = 4
WORDS = (
    "<unk>",
    "<s>",
    "</s>",
    "<pad>",
    "<image>",
    "In:",
    "What",
    "action",
    "should",
    "the",
    "robot",
    "take",
    "to",
    "pick",
    "cube",
    "drop",
    "it",
    "?",
    "Out:",
)
PROMPT = "<image> In: What action should the robot take to {task} ? Out:"


def tiny_processor() -> Any:
    """Return a processor with a tokenizer of whole words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import CLIPImageProcessorPil, LlavaProcessor, PreTrainedTokenizerFast

    words = [*WORDS, *(f"w{i}" for i in range(VOCABULARY - len(WORDS)))]
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        additional_special_tokens=["<image>"],
    )
    side = {"height": 32, "width": 32}
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size=side, crop_size=side),
        tokenizer=fast,
        patch_size=16,
        vision_feature_select_strategy="default",
        image_token="<image>",
        num_additional_image_tokens=1,
    )


def tiny_model(seed: int = 0, *, speaks_actions: bool = True) -> Any:
    """Return a random model; one that speaks actions gives every other word a score that the best action beats."""
    import torch
    from transformers import AutoModelForImageTextToText, CLIPVisionConfig, LlamaConfig, LlavaConfig

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            **sizes, num_hidden_layers=2, image_size=32, patch_size=16, projection_dim=16
        ),
        text_config=LlamaConfig(
            **sizes,
            vocab_size=VOCABULARY,
            num_hidden_layers=1,
            num_key_value_heads=2,
            max_position_embeddings=128,
        ),
        image_token_index=IMAGE_TOKEN,
        vision_feature_layer=-1,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForImageTextToText.from_config(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "projector" in name or "embed_tokens" in name or "self_attn" in name:
                    parameter.normal_(std=0.5)  # so that what is seen and asked reaches the answer
            model.lm_head.weight.zero_()
            speaking = slice(VOCABULARY - 256, None) if speaks_actions else slice(20, VOCABULARY - 256)
            model.lm_head.weight[speaking].normal_()
    return model


def saved(folder: Path, **kwargs: Any) -> Path:
    """Save a tiny model and its processor as a checkpoint folder."""
    tiny_model(**kwargs).save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    return folder


def saved_adapter(base: Path, folder: Path, seed: int = 1) -> Path:
    """Save a LoRA adapter with random weights for a saved model."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    model = get_peft_model(
        AutoModelForImageTextToText.from_pretrained(base),
        LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"]),
    )
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.5)
    model.save_pretrained(folder)
    return folder
