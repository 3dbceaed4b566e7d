"""Every argument and option of every command, described once.

A command's signature names what it takes and its default; what that means is written here. Names in
braces stand for a table of `catalogue` and are filled in when help is shown, and only then: a table
may live in a room that imports a model framework, and `--help` must answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Beyond these a number is a slip of the finger, and what it asks for would never end.
MOST = 10**9
MOST_SEEDS = 10_000  # also trials, epochs, draws: whatever is done over again
MOST_WIDTH = 65_536
MOST_LAYERS = 128
MOST_SEED = 2**32 - 1  # what every generator takes

# ---- the data ----

Data = Annotated[
    str, typer.Argument(help="A Parquet, CSV or JSONL file, a datasets folder, or a set.")
]
DataFile = Annotated[str, typer.Argument(help="A Parquet, CSV or JSONL file.")]
Text = Annotated[str | None, typer.Option(help="Column of the texts.")]
Label = Annotated[str | None, typer.Option(help="Column of the task label.")]
Private = Annotated[
    list[str] | None,
    typer.Option(help="Column of a private attribute. May be repeated, or be a list with commas."),
]
HoldOut = Annotated[
    list[str] | None,
    typer.Option(help="Private attribute that training may not see. As --private."),
]
Derive = Annotated[
    str | None,
    typer.Option(
        help="Read off the texts: names, email, phone, number, words:FILE or a|b as attributes; "
        "topics as the task."
    ),
]
Author = Annotated[str | None, typer.Option(help="Column of the author.")]
AuthorOfAggregates = Annotated[
    str | None, typer.Option(help="Column of the author, for aggregates.")
]
Where = Annotated[
    str | None,
    typer.Option(help="Keep rows, as in \"language == 'en'\" or \"'How old?' >= 30\"."),
]
DropEmpty = Annotated[
    bool, typer.Option("--drop-empty", help="Leave out rows without a text, vector or author.")
]
MergeRare = Annotated[
    int | None,
    typer.Option(
        max=MOST, help="Merge classes on fewer rows than this; leave out what is still too rare."
    ),
]
Encoding = Annotated[
    str | None, typer.Option(help="Of a text file: utf-8, utf-16, cp1252, latin-1 …")
]
Separator = Annotated[
    str | None, typer.Option(help="Of a CSV file: comma, semicolon, tab, pipe or a sign.")
]
Vectors = Annotated[str | None, typer.Option(help="Column of ready vectors.")]
MEMBER = typer.Option(help="Column that says who was trained on (yes/no, 1/0).")
Member = Annotated[str, MEMBER]
MemberIfAny = Annotated[str | None, MEMBER]
Bins = Annotated[
    list[str] | None, typer.Option(help="Cut a number, as in age=30,50. May be repeated.")
]
Subgroups = Annotated[
    list[str] | None,
    typer.Option(help="Column whose classes are reported separately. As --private elsewhere."),
]
TrainingTexts = Annotated[
    str | None, typer.Option(help="The texts it was trained on, for the other attacks.")
]
Auxiliary = Annotated[
    str | None,
    typer.Option(help="The attacker's own texts: a file with the same text column, or a set."),
]
AuxiliaryData = Annotated[
    str | None,
    typer.Option(
        "--auxiliary",
        help="Other labelled data that teach one more attacker: a file with columns of the same "
        "names, or a set.",
    ),
]
Sentences = Annotated[
    bool, typer.Option("--sentences", help="Cut texts into sentences of 5 to 20 words.")
]
MaxTexts = Annotated[
    int | None, typer.Option(max=MOST, help="Use at most this many texts, drawn at random.")
]

# ---- the encoder, and what it releases ----

ENCODER_HELP = "{encoders}, a folder or a Hugging Face id."
Encoder = Annotated[str, typer.Option(help=ENCODER_HELP)]
EncoderArgument = Annotated[str, typer.Argument(help=ENCODER_HELP)]
EncoderInstead = Annotated[
    str | None, typer.Option(help="Or a text encoder: name, folder or Hugging Face id.")
]
Backend = Annotated[str, typer.Option(help="auto, torch, onnx or int8.")]
RECIPE_HELP = "A TOML recipe of the private encoder; steps: encoder, map, {mechanisms:or}."
Recipe = Annotated[Path, typer.Option(help=RECIPE_HELP)]
RecipeToVerify = Annotated[Path | None, typer.Option(help=RECIPE_HELP)]
RecipeToAudit = Annotated[
    Path | None, typer.Option(help="A TOML recipe: audit what this private encoder releases.")
]
RecipeToAttack = Annotated[
    Path | None, typer.Option(help="A TOML recipe: attack what this private encoder releases.")
]
RecipeInstead = Annotated[
    Path | None, typer.Option(help="Or a TOML recipe: attack what it releases.")
]
WordVectors = Annotated[
    Path | None, typer.Option(help="Word vectors in word2vec's text format, to be attacked.")
]
Source = Annotated[
    str,
    typer.Argument(
        help="A Parquet, CSV or JSONL file of any size, or a set; or many Parquet files: a folder, "
        "a pattern in quotes, an address."
    ),
]
Target = Annotated[
    str, typer.Argument(help="The Parquet file of released vectors; of many files, a folder.")
]
Engine = Annotated[
    str | None,
    typer.Option(help="Who draws the parts of a folder: local (default) or ray (extra: ray)."),
]
Address = Annotated[
    str | None,
    typer.Option(help="Of a Ray cluster, HOST:PORT or auto; without it one is begun."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        max=MOST_SEEDS, help="How many draw at once; local: 1, this process; ray: all cores."
    ),
]
Subject = Annotated[str | None, typer.Option(help="Column of whom a row is about.")]
# Texts, not paths: a path would make one slash of the two in a URL.
_PLACE = "FILE|URL"
_STORE_HELP = "A ledger file, or the postgresql:// URL of a database."
Ledger = Annotated[
    str | None,
    typer.Option(help="File or postgresql:// URL in which subjects are charged.", metavar=_PLACE),
]
LedgerPlace = Annotated[str, typer.Argument(help=_STORE_HELP, metavar="LEDGER")]
LedgerHere = Annotated[str, typer.Option("--ledger", help=_STORE_HELP, metavar=_PLACE)]
LedgerCopy = Annotated[Path, typer.Argument(help="The ledger file that the copy becomes.")]
LedgerBackup = Annotated[Path, typer.Argument(help="A ledger file that `backup` wrote.")]
EmptyPlace = Annotated[
    str, typer.Argument(help="Where no ledger is yet: a file or a postgresql:// URL.")
]
NewKeyFile = Annotated[
    Path, typer.Option("--to", help="File of the new key; made where it is not there.")
]
KeyLabel = Annotated[str, typer.Option("--label", help="What to call the key, to find it again.")]
KeySubject = Annotated[
    str | None, typer.Option("--subject", help="The one person whom requests with it are charged.")
]
IsOperator = Annotated[
    bool, typer.Option("--operator", help="The key also opens the operator's page.")
]
KeyId = Annotated[str, typer.Argument(help="The id that `capelet keys list` shows.")]
Budget = Annotated[
    float | None,
    typer.Option(help="The most ε that a subject may cost; a ledger's first stays its cap."),
]
NewBudget = Annotated[
    float | None, typer.Option("--to", help="The new cap of ε per person; a day's, if it refills.")
]
NewLifetime = Annotated[
    float | None, typer.Option("--lifetime", help="The new cap of all days, where one refills.")
]
Person = Annotated[str, typer.Option(help="The person's name, as the subjects' column has it.")]
Anchor = Annotated[
    Path | None,
    typer.Option(help="File elsewhere that notices a ledger which was shortened or replaced."),
]
Repeats = Annotated[
    str | None,
    typer.Option(
        help="fresh (default): draw and pay for each row; same: equal texts of a person get the "
        "same vector, which shows that they are equal."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the target.")]
OnlyUnseen = Annotated[
    bool, typer.Option("--only-unseen", help="Leave out rows that trained the private encoder.")
]

# ---- the gateway ----

ServedRecipe = Annotated[
    Path | None, typer.Option("--recipe", help=f"{RECIPE_HELP} Needs --ledger and --budget.")
]
ServedLedger = Annotated[
    str | None,
    typer.Option("--ledger", help=f"{_STORE_HELP} It has the API keys, too.", metavar=_PLACE),
]
ServedBudget = Annotated[
    float | None,
    typer.Option("--budget", help="The most ε that a person may cost; the store's cap."),
]
ServedHead = Annotated[
    Path | None,
    typer.Option("--head", help="Folder of a private encoder: label vectors with its head."),
]
Refill = Annotated[
    str, typer.Option(help="none, or daily: the budget is that of a day (UTC), with --lifetime.")
]
Lifetime = Annotated[
    float | None, typer.Option(help="With --refill daily: the most ε that a person may ever cost.")
]
ServedRepeats = Annotated[
    str,
    typer.Option(
        "--repeats",
        help="same: a text that comes again gets its stored vector, which shows that it is equal; "
        "fresh: every request is drawn and paid for, and needs an Idempotency-Key.",
    ),
]
ServedModel = Annotated[
    str | None, typer.Option("--model", help="The model's name for clients; the recipe's.")
]
Host = Annotated[str, typer.Option(help="Where to listen; beyond this machine only with API keys.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")]
Certificate = Annotated[Path | None, typer.Option(help="PEM file of the certificate, for TLS.")]
CertificateKey = Annotated[
    Path | None, typer.Option("--key", help="PEM file of the certificate's key.")
]
DemoData = Annotated[
    str | None,
    typer.Option(help="Texts on which the page's attackers learn; the embedded sample."),
]
NoDemo = Annotated[bool, typer.Option("--no-demo", help="Teach the operator's page no attackers.")]
AllowUnproven = Annotated[
    bool, typer.Option("--allow-unproven", help="Serve a guarantee that is only claimed, too.")
]

# ---- the attackers, and how sure a measurement is ----

Split = Annotated[
    str, typer.Option(help="auto, {splits:or}; or column:NAME, a column of train, dev and test.")
]
Seeds = Annotated[
    str,
    typer.Option(
        metavar="N|LIST",
        help="How many splits to average over; or which, by seed: 0,1,2, or 7, for 7 alone.",
    ),
]
AttackSeed = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, help="Seed of the split and of the attackers.")
]
SeededRelease = Annotated[
    bool,
    typer.Option(
        "--seeded-noise",
        help="Measure releases whose noise is drawn from each split's seed, so that a study can be "
        "repeated: no guarantee.",
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=MOST_SEEDS, help="How many splits to attack in parallel.")
]
Metrics = Annotated[
    str | None,
    typer.Option(
        help="More metrics: empirical_privacy, empirical_privacy_f1, recall_present, recall_absent."
    ),
]
Attackers = Annotated[
    str | None,
    typer.Option(help="{attackers}; all by default. Sized: mlp:depth=3,width=200."),
]
KindsOfAttack = Annotated[str, typer.Option(help="Kinds of attack: {kinds of attack}, or all.")]
InversionAttacks = Annotated[
    str, typer.Option("--attacks", "--attack", help="{inversion attacks}.")
]
Draws = Annotated[
    int,
    typer.Option(
        max=MOST_SEEDS, help="How often the attacker sends each text through a noised release."
    ),
]
Minutes = Annotated[float | None, typer.Option(help="How long the attack 'sequence' may learn.")]
AllowOverlap = Annotated[
    bool, typer.Option("--allow-overlap", help="Allow victims among the auxiliary texts.")
]
ByFrequency = Annotated[
    bool,
    typer.Option(
        "--by-frequency", help="Look at pairs of sentences by how frequent their words are, too."
    ),
]
Window = Annotated[
    int, typer.Option(max=MOST_SEEDS, help="Words to either side of a window's centre.")
]
CompareMap = Annotated[
    list[Path] | None,
    typer.Option(
        help=(
            "A recipe whose release is plotted on the same t-SNE map as the vectors. May be "
            "repeated."
        )
    ),
]
ReleasedFile = Annotated[
    Path | None,
    typer.Argument(help="A released Parquet file: what does it tell beside its vectors?"),
]
Pipeline = Annotated[
    bool,
    typer.Option(
        "--pipeline", help="Judge the whole road: release neighbouring files, compare what leaves."
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(max=MOST, help="Outputs drawn of each input of a noise step [1000000]."),
]
Confidence = Annotated[
    float | None, typer.Option(help="How sure a refutation of a noise step must be [0.999].")
]
Specimens = Annotated[
    bool, typer.Option("--specimens", help="Allow known-broken steps, to see them fail.")
]
FailOver = Annotated[
    float | None,
    typer.Option(
        help="Exit with 1 when an attacker gains more than this over chance (95 % confidence)."
    ),
]
RequireUnder = Annotated[
    float | None,
    typer.Option(
        help="Exit with 0 only when every attacker is shown to gain less than this over chance "
        "(95 % confidence); 1 when one gains more, 3 when neither is shown."
    ),
]
MinVictims = Annotated[
    int | None, typer.Option(max=MOST, help="Exit with 3 when fewer people than this were scored.")
]
Tasks = Annotated[str | None, typer.Option(help="{sentence tasks}; all that are here.")]

# ---- defences ----

Method = Annotated[str | None, typer.Option(help="By default gr+; {defences:or}.")]
Use = Annotated[
    str | None,
    typer.Option("--purpose", help="What is released, to choose the method by: {uses:or}."),
]
Epsilon = Annotated[float | None, typer.Option(help="The ε of the noise.")]
AdversaryWeight = Annotated[
    str | None,
    typer.Option(
        "--adversary-weight",
        help="How hard the secrets are fought: a number, or one for each, as in gender=1,age=0.3.",
    ),
]
AdversaryLoss = Annotated[
    str | None,
    typer.Option(help="What the map has from its adversary: reversal (default) or bounded."),
]
Preset = Annotated[
    str | None, typer.Option(help="A paper's settings, {presets:or}; options go before it.")
]
BatchRows = Annotated[int | None, typer.Option(min=1, max=MOST, help="Texts per step.")]
LearningRate = Annotated[float | None, typer.Option(help="Learning rate of Adam.")]
MostEpochs = Annotated[
    int | None, typer.Option(min=1, max=MOST_SEEDS, help="Times that all texts are seen, at most.")
]
HeadUnits = Annotated[
    int | None, typer.Option(min=1, max=MOST_WIDTH, help="Hidden units of the heads.")
]
Dropout = Annotated[float | None, typer.Option(help="Share of them that a step leaves out.")]
WordTable = Annotated[
    str | None,
    typer.Option(
        "--table",
        help="Word vectors for mdp: an encoder's name, or a file in word2vec's text.",
    ),
]
WordDropout = Annotated[
    float | None, typer.Option(help="The share of words that dpnr drops [0.5].")
]
TrainEpsilon = Annotated[
    float | None,
    typer.Option(help="Train with differential privacy: the ε of replacing one training text."),
]
TrainDelta = Annotated[
    float | None, typer.Option(help="Its δ; by default n^−1.1, and at most 1e-5.")
]
TrainUnit = Annotated[
    str | None, typer.Option(help="What --train-epsilon covers: text (default) or author.")
]
MapWidth = Annotated[
    int | None, typer.Option(max=MOST_WIDTH, help="Units of the dense layers [64].")
]
Keep = Annotated[
    str | None,
    typer.Option(help="What to keep: task, neighbours or both; the task where there is a label."),
]
TuneLayers = Annotated[
    int | None, typer.Option(max=MOST, help="How many last layers of the encoder to train along.")
]
MaxLeakage = Annotated[
    float | None,
    typer.Option(help="Search settings whose attackers gain at most this over chance."),
]
MinUtility = Annotated[
    float | None, typer.Option(help="Search settings that are worth at least this.")
]
Trials = Annotated[int, typer.Option(max=MOST_SEEDS, help="How many settings to try.")]
AllowUselessEpsilon = Annotated[
    bool,
    typer.Option("--allow-useless-epsilon", help="Train even if this ε makes the task impossible."),
]

# ---- networks and their training ----

Width = Annotated[int, typer.Option(max=MOST_WIDTH, help="Size of word vectors and states.")]
Layers = Annotated[int, typer.Option(max=MOST_LAYERS, help="Layers of the network.")]
Length = Annotated[int, typer.Option(max=MOST_SEEDS, help="Words of a text that are read.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]

DualNetwork = Annotated[str, typer.Option(help="transformer or lstm.")]
LambdaWords = Annotated[float, typer.Option(help="λ against readers of words.")]
LambdaAuthors = Annotated[float, typer.Option(help="λ against readers of authors.")]
Negatives = Annotated[
    str | None,
    typer.Option(help="any, or author: told apart from the same author's other posts."),
]
Start = Annotated[
    str, typer.Option(help="Word vectors to begin from: none, or glove (extra: words).")
]
DualVocabulary = Annotated[int, typer.Option(max=MOST, help="How many words the encoder knows.")]
Dimension = Annotated[int, typer.Option(max=MOST_WIDTH, help="Size of the released vectors.")]
PairEpochs = Annotated[int, typer.Option(max=MOST_SEEDS, help="Times that all pairs are seen.")]
PairBatch = Annotated[int, typer.Option(max=MOST, help="Pairs per step.")]
DualRate = Annotated[float, typer.Option(help="Learning rate.")]
DualSeed = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, help="Of the weights and the batches.")
]

ModelMethod = Annotated[str, typer.Option(help="{language methods:or}.")]
ModelNetwork = Annotated[str, typer.Option(help="lstm or transformer.")]
ModelVocabulary = Annotated[int, typer.Option(max=MOST, help="How many words the model knows.")]
WordList = Annotated[
    str | None,
    typer.Option(
        help="Where they come from: public:glove, a public file with one per line, or private "
        "(read off the texts through noise that ε pays for); else read off the texts."
    ),
]
TextEpochs = Annotated[int, typer.Option(max=MOST_SEEDS, help="Times that all texts are seen.")]
TextBatch = Annotated[
    int, typer.Option(max=MOST, help="Texts per step; authors, where they are the unit.")
]
ModelRate = Annotated[float, typer.Option(help="Learning rate of Adam.")]
Batching = Annotated[str, typer.Option(help="uniform, author or grouped; dpsgd samples by itself.")]
Strength = Annotated[float, typer.Option(help="λ of adversarial and triplet.")]
Position = Annotated[
    str, typer.Option(help="The state that is kept from authors: random (prefix) or last.")
]
ModelEpsilon = Annotated[float | None, typer.Option(help="The ε that dpsgd must keep.")]
Delta = Annotated[float | None, typer.Option(help="Its δ; at most n^−1.1, the default.")]
NoiseMultiplier = Annotated[float | None, typer.Option(help="The noise of dpsgd instead of its ε.")]
Clip = Annotated[float, typer.Option(help="The longest gradient of one text, or author.")]
Unit = Annotated[
    str, typer.Option(help="What ε covers: record (one text) or author (all of them).")
]
TextsPerAuthor = Annotated[
    int | None,
    typer.Option(max=MOST, help="Texts of an author that train, at most, with --unit author; 16."),
]
Canaries = Annotated[
    str | None,
    typer.Option(help="Insert made-up secrets; the number of insertions per secret: 1,5,20,50."),
]
CanaryAuthors = Annotated[
    int | None, typer.Option(max=MOST, help="Authors per number of repetitions; all of them.")
]
ModelSeed = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, help="Of the split, the weights and the batches.")
]
SeededNoise = Annotated[
    bool, typer.Option("--seeded-noise", help="Repeatable noise, for studies: no guarantee.")
]
ModelFolder = Annotated[Path, typer.Argument(help="A folder that `capelet lm train` wrote.")]
ReferenceModel = Annotated[
    Path | None, typer.Option(help="A model trained on other texts, for membership.")
]
BaselineModel = Annotated[
    Path | None, typer.Option(help="A model without privacy, for the drop per author.")
]
RandomSequences = Annotated[
    int, typer.Option(max=MOST, help="Random sequences that rank a canary.")
]
ExtractionSeed = Annotated[
    int, typer.Option(min=0, max=MOST_SEED, help="Of what the attacker draws.")
]

# ---- studies ----

PlanFile = Annotated[Path, typer.Argument(help="A plan: a TOML file.")]
PlanFiles = Annotated[list[Path], typer.Argument(help="Plans, or folders of plans.")]
PlansToShow = Annotated[
    list[Path] | None,
    typer.Argument(help="Plans, or folders of plans; without any all pages are drawn again."),
]
StudyFolder = Annotated[Path, typer.Argument(help="A folder that `capelet study` wrote.")]
Size = Annotated[str, typer.Option(help="Which size of the plan: small or full.")]
CellsFolder = Annotated[
    Path | None,
    typer.Option("--cells", help="Folder of the cells, which studies may share; OUT/store."),
]
StudyEngine = Annotated[str, typer.Option(help="Where cells are measured: local or ray.")]
CellsAbreast = Annotated[
    int | None,
    typer.Option("--workers", max=MOST, help="Cells at once; as many as there are cores."),
]
Retry = Annotated[bool, typer.Option("--retry", help="Measure cells again that failed before.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be measured and how long it would take.")
]
ManyCells = Annotated[bool, typer.Option("--yes", help="Allow more than 100,000 cells.")]
OutResults = Annotated[Path, typer.Option("--to", help="Folder of the pages of results.")]
OutStudy = Annotated[Path | None, typer.Option(help="Folder of the table.")]

# ---- what comes out ----

NoCache = Annotated[bool, typer.Option("--no-cache", help="Keep no vectors on disk.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
OutReport = Annotated[Path | None, typer.Option(help="Folder of the report.")]
OutProtected = Annotated[Path, typer.Option(help="Folder of the private encoder and its report.")]
OutEncoder = Annotated[Path, typer.Option(help="Folder of the encoder.")]
OutModel = Annotated[Path, typer.Option(help="Folder of the model.")]
OutOrModel = Annotated[Path | None, typer.Option(help="Where to write; the model's folder.")]
OutOrRun = Annotated[Path | None, typer.Option(help="Where to write; the (second) run itself.")]
ShowTexts = Annotated[
    bool, typer.Option("--show-texts", help="Put texts and words into the examples.")
]
ShowInverted = Annotated[
    bool, typer.Option("--show-texts", help="Put texts and words into inversion's examples.")
]
Run = Annotated[
    Path,
    typer.Argument(
        help="A folder that `audit`, `protect`, `invert`, `membership` or `lm attack` wrote."
    ),
]
Runs = Annotated[
    list[Path], typer.Argument(help="Folders that `capelet lm attack` wrote, two or more.")
]
OutComparison = Annotated[Path, typer.Option(help="Folder of the comparison.")]
OtherRun = Annotated[Path | None, typer.Argument(help="A second one, to compare with.")]
