"""Text encoders: the contract, a hashing encoder that needs no model, and sentence encoders from a folder."""

from gfm_rag.encoders.contract import Encoder, encode
from gfm_rag.encoders.hashing import HashingEncoder
from gfm_rag.encoders.named import EncoderRecord, open_encoder
from gfm_rag.encoders.sentence import SentenceEncoder

__all__ = ["Encoder", "EncoderRecord", "HashingEncoder", "SentenceEncoder", "encode", "open_encoder"]
