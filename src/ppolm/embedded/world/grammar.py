"""The building blocks of posts in the embedded world: the values of each fact, and the sentences around them.

No value is part of another value or of a fixed sentence, so that a fact can be found in a text by its words alone.
"""

WHO = {
    "relationships": ("girlfriend", "boyfriend", "wife", "husband", "fiance", "ex"),
    "family": ("sister", "brother", "mother", "father", "uncle", "aunt", "cousin", "grandmother", "stepfather", "son"),
    "work": ("boss", "coworker", "manager", "intern", "client", "teacher", "coach", "classmate"),
    "advice": ("roommate", "neighbor", "landlord", "friend", "dentist", "tenant", "barber", "tutor"),
}
"""People, by the subreddit in which they are written about."""

PROBLEM = (
    *("keeps borrowing my car", "reads my private messages", "never pays the rent", "lost my passport"),
    *("sold my old guitar", "forgot my birthday", "yells at my dog", "copies everything I do"),
    *("spends all our savings", "smokes in my kitchen", "broke my new laptop", "lies about small things"),
    *("invites strangers over", "wakes me up nightly", "refuses to see doctors", "gossips about my health"),
    *("owes me six hundred dollars", "threw away my letters", "ignores me at dinner", "eats my lunch"),
    *("drives after drinking beer", "plays loud drums", "hates my haircut", "cheats at board games"),
    *("wants to quit school", "took credit for my report", "burned my best shirt", "follows me online"),
    *("makes fun of my accent", "hides money from me", "talks during every movie", "left my bike outside"),
    *("bought a snake without asking", "cancels plans late", "leaves dirty dishes everywhere", "posts my photos"),
    *("wears my clothes", "parks on my grass", "brings up politics", "sleeps until noon"),
)

TRIED = (
    *("wrote a long letter", "made a schedule", "asked for an apology", "offered to pay", "set clear rules"),
    *("called a lawyer", "bought a new lock", "stayed at a hotel", "joined a support group", "tried being patient"),
    *("sent three emails", "cooked a nice meal", "stopped answering calls", "took a week off", "drew a chart"),
    *("hired a cleaner", "raised my voice", "planned a trip", "moved my things", "suggested therapy"),
    *("kept a diary", "gave a warning", "said it was fine", "borrowed a camera"),
)

OUTCOME = (
    *("nothing changed", "it got worse", "we had a fight", "everyone laughed", "there was silence"),
    *("the tears came", "it lasted one day", "my plan failed", "rumors spread", "doors were slammed"),
    *("promises were broken", "I felt guilty"),
)

QUESTION = (
    *("should I move out", "how do I say no", "am I overreacting", "should I forgive this", "is it too late"),
    *("do I tell the truth", "should I call the police", "how can I stay calm", "would you leave", "was I rude"),
    *("should I change jobs", "how do I set limits", "can trust come back", "should we split the cost"),
    *("is this normal", "who should decide", "when is enough enough", "should I wait longer", "what would you do"),
    *("do I deserve better", "should I keep quiet", "how do I get even", "is counseling worth it", "should I sell it"),
)

TITLES = (
    "{Question}?",
    "My {who} {problem}",
    "Problem with my {who}",
    "I {tried} and {outcome}",
    "Need some honest opinions",
    "Long story about my {who}",
)

COMPLAINTS = (
    "My {who} {problem}.",
    "Lately my {who} {problem}.",
    "The trouble is that my {who} {problem}.",
    "For {time} now my {who} {problem}.",
    "It started when I noticed that my {who} {problem}.",
)
ATTEMPTS = (
    "I {tried} but {outcome}.",
    "Last {day} I {tried} but {outcome}.",
    "First I {tried}, and then {outcome}.",
    "So I {tried}. After that {outcome}.",
)
ENDINGS = (
    "{Question}?",
    "So {question}?",
    "My question is this: {question}?",
    "Be honest with me, {question}?",
)

TIMES = ("two weeks", "a month", "half a year", "a few days", "three years")
DAYS = ("monday", "tuesday", "friday", "sunday", "weekend", "summer")
AGES = ("twenty", "thirty", "forty", "nineteen", "fifty")
PLACES = ("Boston", "Denver", "a small town", "Canada", "the city", "Texas")
WEATHER = ("rainy", "hot", "cold", "windy")
MEALS = ("soup", "pizza", "noodles", "salad")

OPENINGS = (
    "I am {age} years old and live in {place}.",
    "Hello, this is my first post here.",
    "Sorry, I am on my phone.",
    "I grew up in {place}.",
)
DISTRACTORS = (
    "It has been {weather} in {place} all week.",
    "By the way, my {other} likes {meal}.",
    "My {other} is {age} and lives in {place}.",
    "Even my {other} {distraction} sometimes, which I do not mind.",
    "Yesterday we had {meal} for dinner.",
    "I work part time in {place}.",
    "My {other} says that I worry a lot.",
    "We have known each other for {time}.",
)

FLUFF = (
    "Anyway thanks for reading this.",
    "Anyway any advice is welcome.",
    "Anyway sorry for my messy post.",
    "Anyway it is a strange story.",
    "Anyway I have no idea anymore.",
    "Anyway please be kind to me.",
)
"""Filler sentences in padded summaries."""
