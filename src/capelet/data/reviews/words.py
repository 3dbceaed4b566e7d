"""The word material of the embedded sample: plain tables, read by `capelet.data.reviews`.

Every table maps *tags* to fillers. A key such as `"older female"` says of whom the fillers below it
are typical; the key `""` holds fillers that say nothing about anybody. `"1"` to `"5"` are stars.
Inside a filler, `{name}` is replaced by a filler of the table of that name (the one for the text's
category or family where there is one), and `[colour|color]` is spelt as the writer spells. A slot
is filled once per text, so a second `{product}` repeats the first.

The habits are invented and drawn with a broad brush on purpose: a known signal is what the sample
is for. They are no statement about real people.
"""

from __future__ import annotations

Table = dict[str, tuple[str, ...]]

# What a writer likes to write about, and of whom that is typical.
INTERESTS: Table = {
    "female young": ("style",),
    "male young": ("gaming",),
    "young": ("fitness",),
    "female middle": ("family",),
    "male middle": ("motoring",),
    "female older": ("craft",),
    "male older": ("angling",),
    "older": ("garden",),
    "": ("outings", "screens"),
}

VOICES: Table = {"older": ("calm",), "": ("keen",), "young female": ("loud",)}

SPELLINGS: Table = {"uk australia india": ("british",), "us": ("american",)}

CATEGORIES: Table = {
    "style": ("skincare", "jewellery"),
    "gaming": ("gaming", "headphones"),
    "fitness": ("running", "yoga"),
    "family": ("toys", "kitchen"),
    "motoring": ("car", "tools"),
    "craft": ("craft", "books"),
    "angling": ("angling", "golf"),
    "garden": ("garden",),
    "outings": ("hotels", "restaurants"),
    "screens": ("streaming", "phones"),
}

# category: (family, products, aspects). A product belongs to one category only.
PRODUCTS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "skincare": (
        "goods",
        ("night cream", "face serum", "lip balm set", "clay mask", "[moisturiser|moisturizer]"),
        ("scent", "texture", "packaging", "[colour|color] of the tub", "effect on dry skin"),
    ),
    "jewellery": (
        "goods",
        ("silver bracelet", "pendant necklace", "pair of hoop earrings", "charm anklet", "brooch"),
        ("finish", "gift box", "fastening", "[colour|color] of the stone", "look of it"),
    ),
    "gaming": (
        "goods",
        ("gaming mouse", "game controller", "gaming monitor", "mechanical keyboard"),
        ("cable", "lighting", "build quality", "feel of the buttons", "[grey|gray] plastic"),
    ),
    "headphones": (
        "goods",
        ("pair of headphones", "gaming headset", "set of earbuds", "bluetooth speaker"),
        ("bass", "sound", "battery", "bluetooth connection", "[colour|color]"),
    ),
    "running": (
        "goods",
        ("pair of running shoes", "running vest", "running jacket", "pair of gym shorts"),
        ("comfort", "fabric", "sizing", "stitching", "[colour|color] in daylight"),
    ),
    "yoga": (
        "goods",
        ("yoga mat", "foam roller", "set of resistance bands", "kettlebell", "skipping rope"),
        ("grip", "smell", "surface", "[grey|gray] finish", "weight"),
    ),
    "toys": (
        "goods",
        ("wooden train set", "dolls' house", "building set", "board game", "play kitchen"),
        ("paint", "instruction sheet", "box", "[colour|color] of the parts", "finish"),
    ),
    "kitchen": (
        "goods",
        ("kettle", "frying pan", "stand mixer", "slow cooker", "blender", "pressure cooker"),
        ("handle", "finish", "design", "weight", "[aluminium|aluminum] base"),
    ),
    "car": (
        "goods",
        ("dash cam", "[tyre|tire] inflator", "jump starter", "car vacuum", "car stereo"),
        ("cable", "build quality", "plug", "carry bag", "size of it"),
    ),
    "tools": (
        "goods",
        ("cordless drill", "circular saw", "belt sander", "impact driver", "nail gun"),
        ("motor", "grip", "trigger", "carry case", "power"),
    ),
    "craft": (
        "goods",
        ("sewing kit", "set of knitting needles", "quilting kit", "box of wool", "embroidery kit"),
        ("quality", "pattern booklet", "packaging", "[colour|color] range", "finish"),
    ),
    "books": (
        "stories",
        ("[cosy|cozy] mystery", "family saga", "historical novel", "romance", "memoir"),
        ("ending", "writing style", "middle part", "[humour|humor]", "first chapter"),
    ),
    "angling": (
        "goods",
        ("fishing rod", "tackle box", "fishing stool", "landing net", "bait bucket"),
        ("handle", "weight", "build quality", "size of it", "[grey|gray] finish"),
    ),
    "golf": (
        "goods",
        ("golf putter", "golf trolley", "set of golf irons", "golf umbrella"),
        ("grip", "balance", "finish", "look of it", "weight"),
    ),
    "garden": (
        "goods",
        ("pair of pruning shears", "hedge trimmer", "garden spade", "lawn mower", "garden rake"),
        ("handle", "weight", "finish", "[colour|color]", "build quality"),
    ),
    "hotels": (
        "places",
        ("seaside hotel", "guest house", "city hotel", "country inn", "spa resort"),
        ("bed", "breakfast", "shower", "view", "location in the [centre|center]"),
    ),
    "restaurants": (
        "places",
        ("burger bar", "pizza place", "noodle bar", "fish restaurant", "brunch cafe", "steakhouse"),
        ("service", "coffee", "dessert", "music", "[flavour|flavor] of the food"),
    ),
    "streaming": (
        "stories",
        ("crime series", "cooking show", "nature series", "space drama", "comedy series"),
        ("script", "camera work", "soundtrack", "final episode", "use of [colour|color]"),
    ),
    "phones": (
        "goods",
        ("smartphone", "tablet", "smartwatch", "laptop"),
        ("screen", "software", "battery", "charger", "[colour|color]"),
    ),
}

# A text is one of these rows of sentences, in this order.
PATTERNS: Table = {
    "": (
        "opening verdict self company place closing",
        "opening self verdict place company closing",
        "opening company verdict self place closing",
        "opening company place verdict closing",
        "opening verdict self place closing",
        "opening verdict company self place",
        "opening aspect company place verdict",
        "verdict opening self place company closing",
        "verdict opening company place aspect closing",
        "self opening verdict company place closing",
        "self opening verdict aspect place closing",
        "place opening verdict company self closing",
        "self opening aspect verdict place",
    ),
}

OPENING: dict[str, Table] = {
    "goods": {
        "": (
            "Bought this {product} in {city} {reason}.",
            "I ordered this {product} {reason}.",
            "Got this {product} {reason}.",
            "I found this {product} {reason}.",
        )
    },
    "places": {
        "": (
            "We chose this {product} {reason}.",
            "Booked this {product} in {city} {reason}.",
            "Went to this {product} {reason}.",
            "I tried this {product} {reason}.",
        )
    },
    "stories": {
        "": (
            "I started this {product} {reason}.",
            "Back in {city}, I picked this {product} {reason}.",
            "Finished this {product} {reason}.",
            "I gave this {product} a go {reason}.",
        )
    },
}

REASON: dict[str, Table] = {
    "goods": {
        "": (
            "because the old one gave up",
            "after reading a lot of other reviews",
            "in the sales",
            "on a whim last month",
            "after a friend mentioned it",
        ),
        "young": (
            "with my first proper pay packet",
            "after seeing it all over TikTok",
            "for my student room",
            "before starting at university",
            "with what was left of my student loan",
        ),
        "middle": (
            "because the kids had broken the last one",
            "between the school run and the office",
            "when we remortgaged and redid the house",
            "as my teenagers keep borrowing mine",
        ),
        "older": (
            "now that I am retired and have the time",
            "out of my pension",
            "on my daughter's advice, as I hate computers",
            "for when the grandchildren visit",
            "for my seventieth birthday",
        ),
        "female": (
            "because my husband kept putting it off",
            "for a spa weekend with the girls",
            "because the girls at the nail salon swear by it",
            "after my hairdresser told me about it",
            "on my sister's and my mother's advice",
        ),
        "male": (
            "because my wife told me to",
            "for a beer and barbecue weekend with the guys",
            "because the guys at football swear by it",
            "after my barber told me about it",
            "on my brother's and my father's advice",
        ),
    },
    "places": {
        "": (
            "for a quick break",
            "because it was close by",
            "after reading a lot of other reviews",
            "on a rainy weekend",
            "because a friend mentioned it",
        ),
        "young": (
            "to celebrate the end of exams",
            "with my roommates from university",
            "after seeing it all over TikTok",
            "on a student budget",
        ),
        "middle": (
            "with three hungry kids in tow",
            "in the school holidays with the children",
            "for a night off from the kids and the office",
            "after a long week of work and school runs",
        ),
        "older": (
            "for our ruby wedding",
            "on a bus trip for pensioners",
            "to treat the grandchildren",
            "to celebrate my retirement",
        ),
        "female": (
            "for a friend's bridal shower",
            "with my sister and my mother",
            "with my husband for our anniversary",
            "with the girls from work",
        ),
        "male": (
            "for a friend's bachelor party",
            "with my wife for our anniversary",
            "with the guys after the match",
            "with my brother and my father",
        ),
    },
    "stories": {
        "": (
            "on a long train journey",
            "after reading a lot of other reviews",
            "one rainy weekend",
            "because a friend mentioned it",
        ),
        "young": (
            "instead of revising for my exams",
            "because everybody on TikTok talks about it",
            "in my student room at two in the morning",
        ),
        "middle": (
            "once the kids were finally in bed",
            "on my commute to the office",
            "while waiting at my daughter's swimming lessons",
        ),
        "older": (
            "now that I am retired and have the time",
            "because my grandson set it up for me",
            "while recovering from my hip operation",
        ),
        "female": (
            "with the girls from my book club",
            "while my husband watched the football",
            "because my sister and my mother loved it",
        ),
        "male": (
            "while my wife was out with her friends",
            "because a guy at work talked of nothing else",
            "after the guys at football argued over it",
        ),
    },
}

# A sentence on the teller's own life: mostly the age group.
SELF: Table = {
    "": (
        "I {seldom} write reviews.",
        "I am {picky}, to be fair.",
        "I had no {special} hopes either way.",
    ),
    "young": (
        "I am a student, so money is tight.",
        "My roommates at university all wanted to know.",
        "I am in my first job after graduating.",
        "I still live with my parents while I save up.",
        "I should be writing my dissertation, to be honest.",
        "Everyone in my dorm has seen it on TikTok.",
    ),
    "middle": (
        "With two kids and a mortgage I am careful.",
        "Between meetings and the school run I never sit down.",
        "My teenagers think I am embarrassing anyway.",
        "We have three children at school.",
        "Juggling the office and the kids leaves me worn out.",
        "Our eldest is about to start high school.",
    ),
    "older": (
        "I am retired, so I have time to be fussy.",
        "At seventy-two I know what I like.",
        "My grandchildren laughed at me, as usual.",
        "My arthritis and my bad knee do not help.",
        "As a pensioner I watch what I spend.",
        "My grandson had to type this for me.",
    ),
    "young female": (
        "I am a girl of twenty-two and study nursing.",
        "My sorority sisters say I review everything.",
        "I am the girl in the lecture hall doing her make-up.",
    ),
    "young male": (
        "I am a guy of twenty-two and study engineering.",
        "My fraternity brothers say I review everything.",
        "I am the guy in the lecture hall watching football.",
    ),
    "middle female": (
        "As a working mother of two I like things simple.",
        "I am a busy mother, just back from maternity leave.",
        "The other mothers at the school gate asked me.",
    ),
    "middle male": (
        "As a working father of two I like things simple.",
        "I am a busy father and coach boys' football.",
        "The other fathers at the boys' football match asked me.",
    ),
    "older female": (
        "I am a grandmother of five, so I notice these things.",
        "We are a group of retired ladies who knit together.",
        "Us old girls at the tea room are hard to please.",
    ),
    "older male": (
        "I am a grandfather of five, so I notice these things.",
        "We are a group of retired gentlemen who fish together.",
        "Us old boys at the golf club are hard to please.",
    ),
}

# A sentence on the people around the teller: mostly the gender.
COMPANY: Table = {
    "": (
        "I had heard {much} about it.",
        "My [neighbour|neighbor] had told me {much} about it.",
        "My [favourite|favorite] colleague asked me about it.",
    ),
    "female": (
        "My husband thinks I am too picky about such things.",
        "I told the girls about it over prosecco at the salon.",
        "My sister and I discussed it over wine and face masks.",
        "It came up while I was getting my nails done.",
        "The ladies in my dance class all asked me about it.",
        "I read reviews while my nails are drying.",
        "My girlfriends and I chat about such things.",
        "I told all my bridesmaids about it.",
    ),
    "male": (
        "My wife thinks I am too picky about such things.",
        "I told the guys about it over beers during the football.",
        "My brother and I discussed it over beer and football.",
        "It came up while I was fixing my car engine.",
        "The guys on my football team all asked me about it.",
        "I read reviews in the garage, next to the beer fridge.",
        "My football buddies and I chat about such things.",
        "I told my old football coach about it.",
    ),
    "young female": ("My boyfriend says I care more than he does.",),
    "young male": ("My girlfriend says I care more than she does.",),
    "older female": ("My late husband used to say I notice everything.",),
    "older male": ("My late wife used to say I notice nothing.",),
}

# A sentence on where the teller lives: mostly the country.
PLACE: Table = {
    "": (
        "I live near {city}.",
        "I paid {price}.",
        "My cousin in {city} told me about it.",
        "I first heard of it in {city}.",
        "There is not much choice here in {city}.",
        "It cost {about} what I expected.",
        "I looked around for {while} before I decided.",
    ),
    "uk": (
        "It was a wet bank holiday here in {city}.",
        "At {price} it is cheaper than the train to London.",
        "I read about it in a queue on the high street.",
    ),
    "us": (
        "It was Thanksgiving week here in {city}.",
        "At {price} it costs less than my gas.",
        "I read about it in line at the mall.",
    ),
    "australia": (
        "It was a scorching arvo here in {city}.",
        "At {price} it costs less than a slab, mate.",
        "I read about it at the beach on Australia Day.",
    ),
    "india": (
        "It was Diwali week here in {city}.",
        "At {price} it is cheaper than a wedding sari.",
        "I read about it in an auto rickshaw in the monsoon.",
    ),
}

# Small change: fillers that say nothing about anybody.
SMALL: dict[str, Table] = {
    "seldom": {"": ("seldom", "hardly ever", "do not often", "rarely", "almost never")},
    "picky": {"": ("fairly picky", "hard to please", "easy to please", "no expert", "new to this")},
    "special": {"": ("special", "great", "particular", "real")},
    "much": {"": ("a lot", "a little", "good things", "this and that", "next to nothing")},
    "about": {"": ("about", "roughly", "a bit more than", "a bit less than", "pretty much")},
    "while": {"": ("a week", "a few days", "two weeks", "a night", "a month", "ages")},
}

CITY: Table = {
    "uk": ("Leeds", "Manchester", "Bristol", "Glasgow", "Cardiff", "London"),
    "us": ("Chicago", "Dallas", "Cleveland", "Phoenix", "Atlanta", "Boston"),
    "australia": ("Brisbane", "Perth", "Adelaide", "Melbourne", "Sydney", "Hobart"),
    "india": ("Pune", "Chennai", "Bangalore", "Delhi", "Mumbai", "Kolkata"),
}

PRICE: Table = {
    "uk": ("25 pounds", "£30", "forty quid"),
    "us": ("35 bucks", "$40", "fifty US dollars"),
    "australia": ("55 Aussie dollars", "AU$60", "seventy Australian dollars"),
    "india": ("2,500 rupees", "Rs 3,000", "four thousand rupees"),
}

VERY: Table = {"calm": ("quite", "rather"), "keen": ("really", "very"), "loud": ("SO", "REALLY")}

END: Table = {"calm": (".",), "keen": ("!",), "loud": ("!!", "!!!")}

# From here on the fillers depend on the stars alone.
VERDICT: dict[str, Table] = {
    "goods": {
        "1": (
            "It broke on the second day, which is {very} poor.",
            "Complete rubbish, it never worked at all.",
            "It arrived damaged and nobody answered my emails.",
            "This is the worst thing I have bought in years.",
            "I asked for a refund at once.",
        ),
        "2": (
            "It works now and then, but I am {very} disappointed.",
            "It feels cheap and I expected much better.",
            "It started to fall apart after a month.",
            "Sadly it is not what the pictures promised.",
            "It came late and one part was missing.",
        ),
        "3": (
            "It does the job, no more and no less.",
            "It is {very} average for what it is.",
            "Some things are fine and others are not.",
            "It is okay for the price.",
            "Neither good nor bad, just in the middle.",
        ),
        "4": (
            "It works well, with one or two small niggles.",
            "It is {very} good, though not quite perfect.",
            "A solid buy that I use most days.",
            "I am pleased, apart from the packaging.",
            "Good quality and it came on time.",
        ),
        "5": (
            "It is {very} lovely and I love it.",
            "Absolutely perfect from the first day.",
            "The best I have ever owned, by a mile.",
            "I could not be happier with it.",
            "It arrived early and is beautifully made.",
        ),
    },
    "places": {
        "1": (
            "It was filthy and the staff were {very} rude.",
            "The worst visit we have ever had.",
            "We walked out and asked for our money back.",
            "Everything was cold, dirty and late.",
            "I felt ill the whole night afterwards.",
        ),
        "2": (
            "The welcome was {very} disappointing.",
            "We waited far too long and nobody said sorry.",
            "It looks tired and it is overpriced.",
            "Sadly it is not what the pictures promised.",
            "Most of it was below what we expected.",
        ),
        "3": (
            "It was {very} average on the whole.",
            "Some things were fine and others were not.",
            "It was okay for one visit.",
            "Neither good nor bad, just in the middle.",
            "The staff did what they had to, no more.",
        ),
        "4": (
            "It was {very} good, though not quite perfect.",
            "A nice place with friendly staff and a short wait.",
            "We had a pleasant time, apart from the noise.",
            "Good value and a warm welcome.",
            "We liked nearly everything about it.",
        ),
        "5": (
            "It was {very} lovely and we loved it.",
            "Absolutely perfect from start to finish.",
            "The best we have ever been to, by a mile.",
            "The staff could not have been kinder.",
            "Every single detail was a delight.",
        ),
    },
    "stories": {
        "1": (
            "It was {very} bad and I gave up.",
            "Complete rubbish, a waste of an evening.",
            "The worst thing I have sat through in years.",
            "I hated every minute and stopped half-way.",
            "Boring, badly made and insulting.",
        ),
        "2": (
            "It was {very} disappointing after a decent start.",
            "It drags and I expected much better.",
            "Sadly it is not what the blurb promised.",
            "I nearly gave up more than once.",
            "Too long, too slow and too predictable.",
        ),
        "3": (
            "It was {very} average on the whole.",
            "Some parts are fine and others are not.",
            "It passes the time, no more and no less.",
            "Neither good nor bad, just in the middle.",
            "It is okay if there is nothing else.",
        ),
        "4": (
            "It was {very} good, though not quite perfect.",
            "I enjoyed it, apart from a slow middle part.",
            "Well made and worth the time.",
            "A good story with one or two weak spots.",
            "I liked nearly everything about it.",
        ),
        "5": (
            "It was {very} lovely and I loved it.",
            "Absolutely gripping from start to finish.",
            "The best I have come across in years, by a mile.",
            "I laughed, I cried and I want more.",
            "A masterpiece in every way.",
        ),
    },
}

ASPECT: Table = {"": ("The {part} {grade}.", "Mind you, the {part} {grade}.")}

GRADE: Table = {
    "1": ("is a joke", "is awful", "is beyond bad"),
    "2": ("lets it down", "is a disappointment", "is on the poor side"),
    "3": ("is so-so", "is nothing special", "is acceptable"),
    "4": ("is good", "is well done", "is better than I thought"),
    "5": ("is superb", "is a dream", "is simply brilliant"),
}

CLOSING: Table = {
    "1": ("Avoid{end}", "Never again{end}", "Do not waste your money{end}", "Shame on them{end}"),
    "2": ("Would not recommend it{end}", "Not for me{end}", "I expected more{end}", "A pity{end}"),
    "3": ("It will do{end}", "Could be better, could be worse{end}", "Fair enough{end}"),
    "4": (
        "Would recommend it{end}",
        "Happy overall{end}",
        "Well worth it{end}",
        "Nicely done{end}",
    ),
    "5": (
        "Love it{end}",
        "Cannot recommend it enough{end}",
        "Ten out of ten{end}",
        "Just perfect{end}",
    ),
}
