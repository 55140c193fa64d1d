"""What can be wrong with an engine's arguments, environment and build options: one stable code each."""

from __future__ import annotations

from collections.abc import Mapping

UNKNOWN = "LH100"
REMOVED = "LH101"
FOREIGN = "LH102"
SWALLOWS = "LH103"
MISSING = "LH104"
NO_NUMBER = "LH105"
NO_CHOICE = "LH106"
SWITCH = "LH107"
EQUALS = "LH108"
STRAY = "LH109"
TWICE = "LH110"
CUT_SHORT = "LH111"
IDLE = "LH112"
NO_LOAD = "LH113"
DEPRECATED = "LH114"
SECRET = "LH115"
MANAGED = "LH116"
DOWNLOADS = "LH117"
OPEN = "LH118"
ENDS = "LH119"
ENV_UNKNOWN = "LH120"
ENV_PRESENCE = "LH121"
ENV_BEATS = "LH122"
ENV_OFF = "LH123"
ENV_VALUE = "LH124"
TYPOGRAPHY = "LH125"
BAD_METADATA = "LH126"
OPTION_GONE = "LH130"
OPTION_UNKNOWN = "LH131"
OPTION_FOREIGN = "LH132"
OPTION_DEPRECATED = "LH133"
OPTION_VALUE = "LH134"
OPTION_TAKEN = "LH276"

OVERRIDES = "LH210"
OPENS = "LH211"
DRAFTS_NOTHING = "LH212"
MANY_STATES = "LH213"
SMALL_SLOTS = "LH214"
OPTION_AGAINST_RIG = "LH215"
PATH_AS_TEXT = "LH216"
ALL_PROCESSORS = "LH217"
BAD_OVERRIDE = "LH218"
CUT_BATCH = "LH219"
TOO_MANY = "LH220"
NOT_ENCRYPTED = "LH221"
NOT_REUSED = "LH222"
OTHER_WORDS = "LH223"
CUDA_ORDER = "LH224"
JOINED = "LH255"
IDLE_BESIDE = "LH256"
NO_ADDRESS = "LH257"
HIDDEN_CARDS = "LH258"
NEGATIVE_LAYERS = "LH259"
OVERTAKEN = "LH260"
VLLM_REFUSES = "LH261"
NO_MODEL = "LH273"
NO_TEMPLATE = "LH277"
PLUGGED = "LH281"
OWN_DRAFT = "LH029"
NO_MTP = "LH023"
NO_SPLIT = "LH052"
NO_ATTENTION = "LH054"
NO_FIT = "LH057"
TOO_MANY_THREADS = "LH060"

CODES: Mapping[str, str] = {
    UNKNOWN: "A flag that no known engine has.",
    REMOVED: "A flag that this version of the engine no longer has, or does not have yet.",
    FOREIGN: "A flag of another engine.",
    SWALLOWS: "A flag that needs a value takes the next flag for it.",
    MISSING: "A flag that needs a value is the last argument.",
    NO_NUMBER: "A value that is no number, or out of its range.",
    NO_CHOICE: "A value that is none of those that the flag takes.",
    SWITCH: "A value after a switch, which takes none.",
    EQUALS: "`--flag=value` where the engine wants two arguments.",
    STRAY: "A word that belongs to no flag.",
    TWICE: "A flag given twice; the last one wins.",
    CUT_SHORT: "A number with more behind it, which the engine does not read: `32k` means 32.",
    IDLE: "A flag without effect.",
    NO_LOAD: "A value that passes the command line and fails when the model is loaded.",
    DEPRECATED: "A flag or value that works and will go.",
    SECRET: "A secret that every user of the host can read in the process list.",
    MANAGED: "A flag that llamaherd sets from a key of the inventory.",
    DOWNLOADS: "A flag that makes the server download a model by itself.",
    OPEN: "The server listens on every network without a key among its arguments.",
    ENDS: "A flag that makes the server print something and end.",
    ENV_UNKNOWN: "A LLAMA_ARG_ variable that this engine does not read.",
    ENV_PRESENCE: "A variable whose presence counts, whatever its value.",
    ENV_BEATS: "A variable that beats the command line.",
    ENV_OFF: "A variable whose value switches off what it seems to switch on.",
    ENV_VALUE: "A variable with a value that the engine does not take, or of a flag that is gone.",
    TYPOGRAPHY: "A dash or quotation mark of a word processor, which means nothing to a command line.",
    BAD_METADATA: "A replaced hyperparameter that is not written as the engine wants it.",
    OPTION_GONE: "A CMake option that this engine no longer has.",
    OPTION_UNKNOWN: "A CMake option that no known engine has.",
    OPTION_FOREIGN: "A CMake option of another engine.",
    OPTION_DEPRECATED: "A CMake option that works and will go.",
    OVERRIDES: "An argument or a variable that says something else than the rig does.",
    OPENS: "An argument or a variable that opens more than a server should.",
    DRAFTS_NOTHING: "Settings of drafting, and nothing that drafts.",
    MANY_STATES: "The automatic number of slots multiplies what drafting holds.",
    SMALL_SLOTS: "A context that is shared by slots, so that each has little.",
    OPTION_AGAINST_RIG: "A CMake option that leaves out the rig's cards.",
    PATH_AS_TEXT: "A path where a text is taken.",
    ALL_PROCESSORS: "Threads on every logical processor.",
    BAD_OVERRIDE: "An override of tensors that the engine refuses, or that matches nothing.",
    CUT_BATCH: "More is to be computed at once than is queued.",
    TOO_MANY: "More cards are named than the server sees.",
    NOT_ENCRYPTED: "A key or a certificate alone, which encrypts nothing.",
    NOT_REUSED: "Parts of the cache are to be reused that cannot be moved.",
    OTHER_WORDS: "A model that drafts has other tokens than the one that it drafts for.",
    CUDA_ORDER: "Cards are chosen by numbers that may mean other cards.",
    JOINED: "A flag and its value stand in one argument.",
    IDLE_BESIDE: "An option has no effect beside another one.",
    NO_ADDRESS: "An address or a port is none.",
    HIDDEN_CARDS: "A variable leaves the server no card, and it is to use one.",
    NEGATIVE_LAYERS: "A negative number of layers, which each engine takes for something else.",
    OVERTAKEN: "An override of tensors that all go elsewhere by an earlier one.",
    VLLM_REFUSES: "Options that vLLM refuses together, or by their value.",
    OPTION_TAKEN: "A CMake option with a value that is taken otherwise than it is meant.",
    PLUGGED: "A kind of model that vLLM loads by a plugin.",
    NO_TEMPLATE: "A name that stands for no chat template.",
    NO_MODEL: "What stands for a model is none that the engine loads.",
    OWN_DRAFT: "A model would draft for itself.",
    NO_MTP: "ik_llama.cpp would drop speculative decoding.",
    NO_SPLIT: "The engine does not start with this split mode.",
    NO_ATTENTION: "The V cache is quantised, and flash attention is switched off.",
    NO_FIT: "The engine is to fit the model by itself, and something is placed by hand.",
    TOO_MANY_THREADS: "More threads than there are physical cores.",
    OPTION_VALUE: "A CMake option with a value at which the build stops.",
}
"""Stable meanings: a code is never given a new one."""

COMMAND_LINE: frozenset[str] = frozenset(
    (UNKNOWN, REMOVED, FOREIGN, SWALLOWS, MISSING, NO_NUMBER, NO_CHOICE, SWITCH, EQUALS, STRAY)
)
"""What the engine itself refuses when it reads its command line; the rest it takes without a word."""
