#include "trireme/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme {
namespace {
using ::testing::HasSubstr;
using ::testing::Not;

struct Oar {
  std::string match;
  std::optional<double> length;
  void list(OptionList& o) {
    o.add("match", match, "pattern");
    o.add("length", length, "metres").above(0);
  }
  bool operator==(const Oar&) const = default;
};

struct Ship {
  bool sail = false;
  int64_t rowers = 170;
  double speed = 4.5;
  std::string bank = "thranite";
  std::string feedback = "auto";
  std::optional<double> draught;
  std::vector<std::string> crew;
  std::vector<double> angles{0.5, 0.25};
  Bytes hold{1 << 20};
  Rate signal{1.25e7};
  Seconds watch{0.25};
  OptionTable extras;
  std::string harbour = "here";
  std::vector<Oar> oars;
  bool operator==(const Ship&) const = default;

  void list(OptionList& o) {
    o.section("ship", "hull", [&](OptionList& s) {
      s.add("sail", sail, "whether it is set");
      s.add("rowers", rowers, "people").at_least(1).at_most(200);
      s.add("speed", speed, "m/s").above(0);
      s.add("bank", bank, "place").one_of({"thranite", "zygite", "thalamite"});
      s.add("feedback", feedback, "drum").one_of({"auto", "true", "false"});
      s.add("draught", draught, "metres").at_least(0);
      s.add("crew", crew, "names");
      s.add("angles", angles, "radians").at_most(1);
    });
    o.section("cargo", "load", [&](OptionList& s) {
      s.add("hold", hold, "bytes").at_most(1 << 30);
      s.add("signal", signal, "bytes per second");
      s.add("watch", watch, "seconds").at_least(0.001);
      s.add("extras", extras, "free table");
      s.add("harbour", harbour, "this rank's").local();
      s.rows("oar", oars, "one oar");
    });
  }
};

class Options : public ::testing::Test {
 protected:
  Options() { ship_.list(list_); }

  void read(const std::string& text) { list_.read_toml_text(text, "ship.toml"); }

  template <typename F>
  void expect_error(ErrorCode code, const std::string& message, F call) {
    const Ship before = ship_;
    try {
      call();
      ADD_FAILURE() << "accepted; expected: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_THAT(error.what(), HasSubstr(message));
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
    }
    EXPECT_EQ(ship_, before) << "a refused value was kept";
  }
  void expect_bad_toml(const std::string& text, const std::string& message) {
    expect_error(ErrorCode::input, message, [&] { read(text); });
  }
  void expect_bad_set(const std::string& assignment, const std::string& message) {
    expect_error(ErrorCode::usage, "--set " + assignment + ": " + message, [&] { list_.set(assignment); });
  }

  Ship ship_;
  OptionList list_;
};

constexpr const char* kFullShip = R"([ship]
sail = true
rowers = 12
speed = 3
bank = "zygite"
feedback = false
draught = 0.9
crew = ["a\"b\\", "ü\n"]
angles = [1, 0.1]
[cargo]
hold = "3MiB"
signal = "1gbit"
watch = "2ms"
extras = { on = true, n = 3, x = 1.5, "odd key" = "v" }
harbour = "there"
[[cargo.oar]]
match = ".*"
length = 4.2
[[cargo.oar]]
match = "b"
)";

Ship full_ship() {
  Ship s;
  s.sail = true;
  s.rowers = 12;
  s.speed = 3;
  s.bank = "zygite";
  s.feedback = "false";
  s.draught = 0.9;
  s.crew = {"a\"b\\", "ü\n"};
  s.angles = {1, 0.1};
  s.hold = {3 << 20};
  s.signal = {1.25e8};
  s.watch = {0.002};
  s.extras = {{"on", true}, {"n", int64_t{3}}, {"x", 1.5}, {"odd key", std::string("v")}};
  s.harbour = "there";
  s.oars = {{".*", 4.2}, {"b", std::nullopt}};
  return s;
}

TEST_F(Options, TomlSetsEveryKindOfField) {
  read(kFullShip);
  EXPECT_EQ(ship_, full_ship());
}

TEST_F(Options, QuantitiesTakeBareNumbers) {
  read("[cargo]\nhold = 4096\nsignal = 1.5e3\nwatch = 2");
  EXPECT_EQ(ship_.hold.value, 4096);
  EXPECT_EQ(ship_.signal.bytes_per_second, 1500);
  EXPECT_EQ(ship_.watch.value, 2);
}

TEST_F(Options, ResolvedTomlReadsBackToEqualValues) {
  read(kFullShip);
  ship_.speed = 0.1 + 0.2;
  ship_.signal.bytes_per_second = 1. / 3;
  Ship again;
  OptionList list;
  again.list(list);
  list.read_toml_text(list_.to_toml(), "config.toml");
  EXPECT_EQ(again, ship_);

  Ship defaults;
  OptionList untouched;
  defaults.list(untouched);
  again = Ship{};
  list.read_toml_text(untouched.to_toml(), "config.toml");
  EXPECT_EQ(again, defaults);
}

TEST_F(Options, ResolvedTomlNamesTheOriginOfEachValue) {
  read("[ship]\nrowers = 20\n\n[[cargo.oar]]\nmatch = 'x'\n");
  list_.set("ship.speed=9");
  const auto text = list_.to_toml();
  EXPECT_THAT(text, HasSubstr("rowers = 20  # ship.toml:2\n"));
  EXPECT_THAT(text, HasSubstr("speed = 9.0  # --set\n"));
  EXPECT_THAT(text, HasSubstr("sail = false  # default\n"));
  EXPECT_THAT(text, HasSubstr("# draught is not set\n"));
  EXPECT_THAT(text, HasSubstr("[[cargo.oar]]\nmatch = \"x\"  # ship.toml:5\n"));
  EXPECT_EQ(list_.find("ship.rowers").origin, "ship.toml:2");
}

TEST_F(Options, DigestLeavesOutOriginsAndLocalOptions) {
  const auto before = list_.digest_text();
  read("[ship]\nrowers = 170\n[cargo]\nharbour = 'elsewhere'\n");
  EXPECT_EQ(list_.digest_text(), before);
  for (const char* change : {"ship.rowers=171", "cargo.extras={a=1}", "cargo.oar=[{match='x'}]"}) {
    const auto old = list_.digest_text();
    list_.set(change);
    EXPECT_NE(list_.digest_text(), old) << change;
  }
}

TEST_F(Options, SetTakesTomlAndBareWords) {
  for (const char* assignment :
       {"ship.sail=true", "ship.rowers=12", "ship.speed=3", "ship.bank=zygite", "ship.feedback=false",
        "ship.draught=0.9", "ship.crew=['a\"b\\', \"ü\\n\"]", "ship.angles=[1,0.1]", "cargo.hold=3MiB",
        "cargo.signal=\"1gbit\"", "cargo.watch=2ms", "cargo.extras={on=true, n=3, x=1.5, 'odd key'='v'}",
        "cargo.harbour='there'", "cargo.oar=[{match='.*', length=4.2}, {match='b'}]"}) {
    list_.set(assignment);
  }
  EXPECT_EQ(ship_, full_ship());
}

TEST_F(Options, SetChangesOneEntryOfATable) {
  read("[cargo]\nextras = { n = 3, range = 'max' }");
  list_.set("cargo.extras.n=4");
  list_.set("cargo.extras.word=bare");
  EXPECT_EQ(ship_.extras,
            (OptionTable{{"n", int64_t{4}}, {"range", std::string("max")}, {"word", std::string("bare")}}));
  EXPECT_EQ(list_.find("cargo.extras").origin, "--set");
}

TEST_F(Options, ValuesThatLookLikeTomlStayStringsForStrings) {
  list_.set("cargo.harbour=1");
  EXPECT_EQ(ship_.harbour, "1");
  list_.set("cargo.harbour=a=b # c");
  EXPECT_EQ(ship_.harbour, "a=b # c");
  list_.set("cargo.harbour=");
  EXPECT_EQ(ship_.harbour, "");
}

TEST_F(Options, ALaterSourceReplacesAllRows) {
  read("[[cargo.oar]]\nmatch='a'\nlength=1\n[[cargo.oar]]\nmatch='b'\nlength=2\n");
  list_.set("cargo.oar=[{match='c'}]");
  EXPECT_EQ(ship_.oars, (std::vector<Oar>{{"c", std::nullopt}}));
}

TEST_F(Options, RowsThatCodeAddedArePrinted) {
  ship_.oars = {{"x", 2.0}};
  EXPECT_THAT(list_.to_toml(),
              HasSubstr("[[cargo.oar]]\nmatch = \"x\"  # default\nlength = 2.0  # default\n"));
}

TEST_F(Options, UnknownKeysAreNamedWithTheNearest) {
  expect_bad_toml("\n[ship]\nrower = 3", "ship.toml:3: unknown key ship.rower; did you mean ship.rowers?");
  expect_bad_toml("[ship]\nhold = 3", "ship.toml:2: unknown key ship.hold; did you mean cargo.hold?");
  expect_bad_toml("[ship]\nzzzzzzzzzzzz = 3", "ship.toml:2: unknown key ship.zzzzzzzzzzzz");
  expect_bad_toml("rowers = 3", "ship.toml:1: unknown key rowers; did you mean ship.rowers?");
  expect_bad_toml("[shp]\nsail = true", "ship.toml:1: unknown section [shp]; did you mean [ship]?");
  expect_bad_toml("[xylophone]", "ship.toml:1: unknown section [xylophone]; known are ship, cargo");
  expect_bad_toml("[ship.mast]\nx = 1", "ship.toml:1: unknown key ship.mast");
  expect_bad_set("ship.rower=3", "unknown key ship.rower; did you mean ship.rowers?");
  expect_bad_set("rowers=3", "unknown key rowers; did you mean ship.rowers?");
}

TEST_F(Options, ImpossibleValuesSayWhatIsPossible) {
  expect_bad_toml("[ship]\nrowers = 0", "ship.toml:2: ship.rowers = 0: must be 1 or more, at most 200");
  expect_bad_toml("[ship]\nrowers = 201", "ship.rowers = 201: must be 1 or more, at most 200");
  expect_bad_toml("[ship]\nspeed = 0", "ship.speed = 0: must be above 0");
  expect_bad_toml("[ship]\nspeed = nan", "ship.speed must be a finite number");
  expect_bad_toml("[ship]\ndraught = -0.5", "ship.draught = -0.5: must be 0 or more");
  expect_bad_toml("[ship]\nangles = [0.5, 1.5]", "ship.angles = 1.5: must be at most 1");
  expect_bad_toml("[ship]\nbank = 'zigite'",
                  "ship.bank = \"zigite\": must be thranite | zygite | thalamite; did you mean \"zygite\"?");
  expect_bad_toml("[cargo]\nhold = '2GiB'", "cargo.hold = 2147483648: must be at most 1073741824");
  expect_bad_toml("[cargo]\nhold = -1", "ship.toml:2: cargo.hold: '-1' is not a size");
  expect_bad_toml("[cargo]\nhold = 'large'", "ship.toml:2: cargo.hold: 'large' is not a size");
  expect_bad_toml("[cargo]\nsignal = 'fast'", "cargo.signal: 'fast' is not a rate");
  expect_bad_toml("[cargo]\nwatch = '1us'", "cargo.watch");
  expect_bad_set("ship.rowers=0", "ship.rowers = 0: must be 1 or more, at most 200");
}

TEST_F(Options, WrongTypesSayWhatIsWanted) {
  expect_bad_toml("[ship]\nsail = 1", "ship.toml:2: ship.sail must be true or false, not a whole number");
  expect_bad_toml("[ship]\nrowers = 1.5", "ship.rowers must be a whole number, not a fractional number");
  expect_bad_toml("[ship]\nrowers = '3'", "ship.rowers must be a whole number, not a string");
  expect_bad_toml("[ship]\nspeed = 'x'", "ship.speed must be a number, not a string");
  expect_bad_toml("[ship]\nbank = 3", "ship.bank must be a string, not a whole number");
  expect_bad_toml("[ship]\ncrew = 'x'", "ship.crew must be an array of strings, not a string");
  expect_bad_toml("[ship]\ncrew = [1]", "ship.crew must be an array of strings, not a whole number");
  expect_bad_toml("[ship]\nangles = ['a']", "ship.angles must be a number, not a string");
  expect_bad_toml("[cargo]\nhold = true", "cargo.hold must be a size, not true or false");
  expect_bad_toml("[cargo]\nwatch = []", "cargo.watch must be a time, not an array");
  expect_bad_toml("[cargo]\nextras = 3", "cargo.extras must be a table, not a whole number");
  expect_bad_toml("[cargo]\nextras = { a = [1] }",
                  "cargo.extras must be true, false, a number or a string, not an array");
  expect_bad_toml("ship = 3", "ship.toml:1: ship is a section: write [ship] and its keys below");
  expect_bad_set("ship.rowers=99999999999999999999",
                 "ship.rowers must be a whole number of 64 bits, 1 or more, at most 200");
  expect_bad_set("ship.rowers=many", "ship.rowers must be a whole number, not a string");
  expect_bad_set("cargo.extras.a=[1]",
                 "cargo.extras.a must be true, false, a number or a string, not an array");
}

TEST_F(Options, RowsAreCheckedLikeKeys) {
  read("[[cargo.oar]]\nmatch = 'kept'");
  for (const auto& [text, message] :
       {std::pair{"[cargo]\noar = 3", "ship.toml:2: cargo.oar must be an array of tables"},
        {"[cargo]\noar = [1]", "cargo.oar must be an array of tables"},
        {"[cargo.oar]\nmatch = 'x'", "write [[cargo.oar]]"},
        {"[[cargo.oar]]\nmach = 'x'",
         "ship.toml:2: unknown key cargo.oar.mach; did you mean cargo.oar.match?"},
        {"[[cargo.oar]]\nlength = 0", "ship.toml:2: cargo.oar.length = 0: must be above 0"}}) {
    try {
      read(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::input);
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  }
}

TEST_F(Options, BrokenTomlNamesTheLine) {
  expect_bad_toml("[ship]\nrowers = \n", "ship.toml:2: not valid TOML: ");
  expect_bad_toml("[ship]\nrowers = 1\nrowers = 2\n", "ship.toml:3: not valid TOML: ");
  expect_bad_toml("\x93\xfa\xff", "ship.toml:1: not valid TOML: ");
  expect_bad_toml(std::string("\0\0\0", 3), "ship.toml:1: not valid TOML: ");
}

TEST_F(Options, AnAssignmentNeedsAKeyAndOneValue) {
  expect_bad_set("ship.rowers", "write section.key=value");
  expect_bad_set("=3", "write section.key=value");
  expect_error(ErrorCode::usage, "--set ship.rowers=3 x = 4: one key and one value at a time",
               [&] { list_.set("ship.rowers=3\nx = 4"); });
}

TEST_F(Options, FilesAreReadByPath) {
  const auto path =
      std::filesystem::path(::testing::TempDir()) / cat("trireme_options_", ::getpid(), ".toml");
  write_file(path, "[ship]\nrowers = 33\nx = 1\n");
  try {
    list_.read_toml(path);
    ADD_FAILURE() << "an unknown key was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(path.string() + ":3: unknown key ship.x"));
  }
  write_file(path, "[ship]\nrowers = 34\n");
  list_.read_toml(path);
  EXPECT_EQ(ship_.rowers, 34);
  std::filesystem::remove(path);
  try {
    list_.read_toml(path);
    ADD_FAILURE() << "a missing file was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::input);
    EXPECT_THAT(error.what(), HasSubstr(path.string()));
  }
}

TEST_F(Options, HelpListsEveryKeyWithItsDefaultAndRange) {
  const auto text = list_.help_text();
  EXPECT_THAT(text, HasSubstr("[ship]  hull\n"));
  EXPECT_THAT(text, HasSubstr("rowers = 170\n      people; 1 or more, at most 200\n"));
  EXPECT_THAT(text, HasSubstr("bank = \"thranite\"\n      place; thranite | zygite | thalamite\n"));
  EXPECT_THAT(
      text,
      HasSubstr("[[cargo.oar]]  one oar\n  match = \"\"\n      pattern\n  length\n      metres; above 0\n"));
  for (const auto& o : list_.options()) EXPECT_THAT(text, HasSubstr(o.help)) << o.key;
}

TEST_F(Options, FindRefusesUnknownKeys) {
  EXPECT_EQ(&list_.find("ship.rowers"), &list_.options()[1]);
  expect_error(ErrorCode::usage, "unknown key ship.rowres; did you mean ship.rowers?",
               [&] { list_.find("ship.rowres"); });
}

TEST(AutoNumbers, AreANumberOrTheWordAuto) {
  AutoNumber wait;
  OptionList list;
  list.add("wait", wait, "ms").at_least(0);
  list.read_toml_text("wait = 2", "a");
  EXPECT_EQ(wait.value, 2.0);
  EXPECT_THAT(list.to_toml(), HasSubstr("wait = 2.0"));
  list.read_toml_text("wait = \"auto\"", "a");
  EXPECT_EQ(wait, AutoNumber{});
  EXPECT_THAT(list.to_toml(), HasSubstr("wait = \"auto\""));
  list.set("wait=1.5");
  EXPECT_EQ(wait.value, 1.5);
  list.set("wait=auto");
  EXPECT_EQ(wait, AutoNumber{});
  EXPECT_THROW(list.read_toml_text("wait = \"soon\"", "a"), Error);
  EXPECT_THROW(list.read_toml_text("wait = -1", "a"), Error);
  EXPECT_EQ(wait, AutoNumber{});
}

TEST(OptionsDeathTest, AKeyListedTwiceIsABug) {
  int64_t field = 0;
  OptionList list;
  list.add("x", field, "first");
  EXPECT_DEATH(list.add("x", field, "second"), "x is listed twice");
}

}  // namespace
}  // namespace trireme
