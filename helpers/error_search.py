"""Find the known failure that a text is about: a pasted error, part of one, or a symptom in somebody's own words.

Words are compared, not meanings: each is cut to its stem and put into one group with its synonyms (``_SYNONYMS``), and
rare words count more (tf-idf; cosine with each sentence of the table, BM25 with all words of an entry: Manning,
Raghavan and Schütze, Introduction to Information Retrieval, chapters 6 and 11). A text that shares too little with the
best entry has none: better no answer than a wrong one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache

from helpers.known_errors import KnownError, errors_elsewhere, known_errors

# The limits stand where, of 258 described failures and 60 other texts, most of the first and none of the second passed.
_LEAST_SCORE = 0.2
_LEAST_SCORE_OF_A_PASTE = 0.4  # a text with "SomeError: " in it is a quotation, and should be near to one of ours
_LEAST_WEIGHT = 6.3  # of the words in common: two or three rare ones
_SHARE_OF_A_TITLE = 0.75  # by weight, of a short text that has all of its few words in common
_LEAST_SCORE_OF_A_TITLE = 0.3
_LEAST_WEIGHT_OF_A_TITLE = 4.0
_LEAST_WORDS = 2
_ENOUGH_OF_A_MESSAGE = 0.7  # share of a printed message, by weight, that makes a long paste a quotation of it
_LEAST_WEIGHT_OF_A_MESSAGE = 7.0
_PHRASE_WORDS = 3  # so many words of a message in a row are a quotation
_PART_QUOTED = 0.9
_NEARLY_QUOTED = 0.85
_SATURATION, _LENGTH_SHARE = 1.2, 0.5  # k1 and b of BM25
_BM25_TOP = _SATURATION + 1  # what one word can reach
_PASTE = re.compile(r"\b\w*(?:Error|Exception|Warning): ")

_COMMON_ERRORS = re.compile(
    r"\b(?:Value|Type|Attribute|Runtime|Key|Index|Name|Import|ModuleNotFound|OS)Error\b|UserWarning"
)

_SPLIT_WORDS = re.compile(r"\b(dead|multi)[ -](lock|process|thread)", re.IGNORECASE)  # deadlock, multiprocessing
_PLACES = {"imagedatagenerator": 0.4}  # say where it happens rather than what: they weigh less

# Nobody searches for these, and Python's own names of errors say little about the cause.
_STOP_WORDS = frozenset(
    """
    a about after again all also although always am an and any anyone anything are argument as at attribute
    attributeerror be because been before being both but by can can't cannot could did do does doing don't down each
    eight error even ever every everything exception few five for four from further get gets getting give given
    gives go goes gone got had has have having he her here him how i i'm i've if import importerror in indexerror
    install installed installing into invalid is isn't it it's its itself just keep keeps keyerror like line looks
    me message module modulenotfounderror more most much my myself name named nameerror nine no nobody nor now
    object of off on once one only or oserror other our out over own pip please really runtimeerror s said says see
    seems seven she should six so some somebody something such t ten than that the their them then there these they
    this those though three through to too traceback try trying two typeerror under unexpected until up use used
    userwarning using valueerror very warning was we were what when where which while who whom why will with without
    would yet you your
    """.split()  # noqa: SIM905 - one word an item would be two hundred lines
)
_ERRNO = frozenset({"0", "5", "11", "17", "28", "35", "37", "38", "122", "524"})  # other numbers say nothing
_ENDINGS = ("ations", "ation", "ings", "ing", "ied", "ies", "ed", "es", "s", "ly")
_SYNONYMS = """
worker workers subprocess subprocesses child children multiprocessing multi process processes fork forked forking forks spawned loader loaders
image images picture pictures photo photos photograph photographs pic pics img
label labels target targets annotation
row rows sample samples example examples item items record records
file files h5 hdf5 h5py dataset datasets
hang hangs hanging freeze freezes freezed frozen freezing stuck stall stalls stalled forever blocked blocks waits waiting standstill deadlock deadlocks deadlocked stands still
same identical equal duplicate duplicated duplicates twin twins repeat repeats repeated copies
memory ram rss oom
slow slowly slower slowdown crawl crawls crawling takes ages snail sluggish
speed speedup accelerate faster fast throughput quicker quick
wrong garbage corrupt corrupted corruption scrambled junk nonsense noise garbled mangled
die dies died dead killed kill kills vanished disappeared disappears terminated gone crash crashed crashes
lock locks locked locking
shuffle shuffled shuffling permutation permuted permute
augment augmentation augmented augmentations augmenting transform transforms
black blank dark empty
class classes category categories
weight weights
interrupt interrupted stop stopped ctrl cancel abort
checkpoint modelcheckpoint checkpoints
fit fit_generator predict_generator evaluate_generator train_generator training trains trained
smooth smoothed average averaged mean running
gpu cuda card graphics video vram
increase increases grow grows growing climb climbs climbing leak leaks leaking rises rising creeps
thread threads threading multithreading threaded multithreaded
notebook jupyter cell kernel
chunk chunks chunked
compress compressed compression gzip lzf inflate decompress decompressed decompression unpack unpacked
random rng seed seeds randomness
write written writing writes writer
folder folders directory directories
queue queues queued prefetch prefetched prefetching
sort sorted ordered sorting
truncated truncation truncate
pickle pickled pickling picklable pickleable unpickle unpicklable
index indices indexes indexing indexed
share shared sharing inherit inherited inherits
"""  # noqa: E501 - one group a line


@dataclass(frozen=True)
class Match:
    """An entry and how near it is to the text that was searched for (0 to about 1)."""

    entry: KnownError
    score: float


def explain(text: str) -> KnownError | None:
    """The entry that ``text`` is about, or None when none is near enough."""
    matches = find(text, limit=1)
    return matches[0].entry if matches else None


def find(text: str, limit: int = 3) -> list[Match]:
    """Entries that ``text`` may be about, the best first; empty when none is near enough.

    The first is the answer; those after it reach at least two thirds of its score.
    """
    index = _index()
    words = Counter(_words(text))
    scores = {entry: index.score(entry, words, text) for entry in index.entries}
    ranked = sorted(scores, key=lambda entry: (not index.is_only_the_wrapper(entry, text), scores[entry]), reverse=True)
    best = ranked[0]
    if best is None or not index.near_enough(best, scores[best], words, text):
        return []
    return [Match(entry, scores[entry]) for entry in ranked[:limit] if entry and scores[entry] >= scores[best] * 2 / 3]


@dataclass(frozen=True)
class _Sentence:
    weights: dict[str, float]
    length: float
    whole: float  # sum of its weights
    phrase: str  # its words in a row
    printed: bool  # a message, not a symptom


class _Index:
    """The table, prepared for the search. The entry None stands for errors that are about something else."""

    def __init__(self):
        texts = {entry: (*entry.texts, *entry.also) for entry in known_errors()} | {None: errors_elsewhere()}
        spoken = {entry: (*entry.symptoms, f"{entry.title} {entry.what}") for entry in known_errors()}
        self.entries = list(texts)
        self.bags = {
            entry: Counter(word for text in (*texts[entry], *spoken.get(entry, ())) for word in _words(text))
            for entry in self.entries
        }
        found = Counter(word for bag in self.bags.values() for word in bag)
        self.rarity = {
            word: math.log(1 + len(self.bags) / count) * _PLACES.get(word, 1) for word, count in found.items()
        }
        self.most = math.log(1 + len(self.bags))  # rarity of a word that no entry has
        self.mean_length = sum(map(Counter.total, self.bags.values())) / len(self.bags)
        self.sentences = {
            entry: [
                *(self._sentence(text, printed=True) for text in texts[entry]),
                *(self._sentence(text, printed=False) for text in spoken.get(entry, ())),
            ]
            for entry in self.entries
        }

    def score(self, entry: KnownError | None, words: Counter, text: str) -> float:
        """Half the nearest sentence of the entry, half all of its words."""
        said = self._weights(words)
        length, phrase = _length(said), _phrase(text)
        nearest = max(self._near(sentence, said, length, phrase) for sentence in self.sentences[entry])
        return (nearest + self._bm25(entry, words)) / 2

    def is_only_the_wrapper(self, entry: KnownError | None, text: str) -> bool:
        """Whether the entry is about the error that stands around others, and ``text`` quotes one of these in full."""
        if entry is None or not entry.wraps:
            return False
        said = _phrase(text)
        return any(
            _quoted(sentence.phrase, said) == 1
            for other in self.entries
            if other not in {None, entry}
            for sentence in self.sentences[other]
        )

    def near_enough(self, entry: KnownError, score: float, words: Counter, text: str) -> bool:
        """Whether the best entry is an answer at all."""
        if any(_quoted(sentence.phrase, _phrase(text)) for sentence in self.sentences[entry]):
            return True
        common = words.keys() & self.bags[entry].keys()
        weight = sum(self.rarity[word] for word in common)
        share = weight / sum(self.rarity.get(word, self.most) for word in words) if words else 0
        if share >= _SHARE_OF_A_TITLE:
            least, least_weight = _LEAST_SCORE_OF_A_TITLE, _LEAST_WEIGHT_OF_A_TITLE
        else:
            least, least_weight = _LEAST_SCORE_OF_A_PASTE if _PASTE.search(text) else _LEAST_SCORE, _LEAST_WEIGHT
        return score >= least and weight >= least_weight and len(common) >= _LEAST_WORDS

    def _sentence(self, text: str, *, printed: bool) -> _Sentence:
        weights = self._weights(Counter(_words(text)))
        return _Sentence(weights, _length(weights), sum(weights.values()), _phrase(text), printed)

    def _near(self, sentence: _Sentence, said: dict[str, float], length: float, phrase: str) -> float:
        common = said.keys() & sentence.weights.keys()
        cosine = sum(said[word] * sentence.weights[word] for word in common) / (length * sentence.length or 1)
        share = sum(sentence.weights[word] for word in common) / (sentence.whole or 1)
        if not sentence.printed or sentence.whole < _LEAST_WEIGHT_OF_A_MESSAGE or share <= _ENOUGH_OF_A_MESSAGE:
            share = 0
        return max(cosine, _NEARLY_QUOTED * share, _quoted(sentence.phrase, phrase))

    def _weights(self, words: Counter) -> dict[str, float]:
        return {word: (1 + math.log(count)) * self.rarity.get(word, self.most) for word, count in words.items()}

    def _bm25(self, entry: KnownError | None, words: Counter) -> float:
        bag = self.bags[entry]
        damping = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * bag.total() / self.mean_length)
        gained = sum(self.rarity[word] * bag[word] * _BM25_TOP / (bag[word] + damping) for word in words if word in bag)
        return gained / (sum(self.rarity.get(word, self.most) * _BM25_TOP for word in words) or 1)


@cache
def _index() -> _Index:
    return _Index()


def _length(weights: dict[str, float]) -> float:
    return math.sqrt(sum(weight * weight for weight in weights.values()))


def _quoted(message: str, said: str) -> float:
    """1.0 when what was said holds a sentence of the table word by word, less when it is a part of one."""
    if message == said or (message.count(" ") + 1 >= _PHRASE_WORDS and f" {message} " in f" {said} "):
        return 1.0
    return _PART_QUOTED if said.count(" ") + 1 >= _PHRASE_WORDS and f" {said} " in f" {message} " else 0.0


def _phrase(text: str) -> str:
    """The letters of a text, without numbers and punctuation, which differ from case to case."""
    return " ".join(re.findall(r"[a-z]+", text.lower()))


def _words(text: str) -> list[str]:
    """Stems of the words that say something; of names like ``MyGenerator`` and ``valid_img`` their parts, too."""
    text = _SPLIT_WORDS.sub(r"\1\2", _COMMON_ERRORS.sub(" ", text))
    parts_of_names = re.sub(r"([a-z])([A-Z])", r"\1 \2", " ".join(re.findall(r"\w*[a-z][A-Z]\w*", text)))
    found = []
    for word in re.findall(r"[a-z_][a-z0-9_]*|\d+", f"{text} {parts_of_names}".lower()):
        if word.isdigit():
            found += [word] if word in _ERRNO else []
        elif word not in _STOP_WORDS:
            parts = word.strip("_").split("_") if "_" in word and not word.endswith("_generator") else []
            found += [_canonical(part) for part in (word, *parts) if part and part not in _STOP_WORDS]
    return found


@cache
def _canonical(word: str) -> str:
    stem = _stem(word)
    return _groups().get(stem, stem)


@cache
def _groups() -> dict[str, str]:
    """Stem of each synonym -> stem of the first word of its group."""
    groups: dict[str, str] = {}
    for line in _SYNONYMS.strip().splitlines():
        first, *others = map(_stem, line.split())
        for stem in (first, *others):
            groups.setdefault(stem, first)
    return groups


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending).rstrip("e")
    return word.rstrip("e") if len(word) > 4 else word
