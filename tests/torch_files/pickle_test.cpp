// Pickles written by hand; those of Python are in torch_archive_test.cpp and
// dcp_checkpoint_test.cpp.
#include "torch_files/pickle.h"

#include "base/error.h"
#include "base/interruption.h"
#include "tests/base/error_expectation.h"
#include "tests/torch_files/zip_content.h"

namespace tessera {
namespace {

using namespace std::literals;

using Kind = PickleKind;

constexpr std::string_view kGlobals[] = {"collections.OrderedDict", "torch.Size", "a.Class"};

// With an escape for every opcode: `\x80\x04`, the operations, `.`.
std::string pickled(std::string_view operations) { return cat("\x80\x04"sv, operations, "."); }

Pickle read(const std::string& bytes, const std::function<void(size_t)>& progress = {}) {
  return Pickle(bytes_of(bytes), kGlobals, "here", progress);
}

std::string refusal(const std::string& bytes, Caller caller = Caller::current()) {
  return user_error([&] { read(bytes); }, caller);
}
void expect_refused(std::string_view operations, std::string_view reason,
                    Caller caller = Caller::current()) {
  std::string message = refusal(pickled(operations), caller);
  expect_contains(message, "'here'", caller);
  expect_contains(message, reason, caller);
}

std::string short_text(std::string_view text) {
  return cat('\x8c', static_cast<char>(text.size()), text);
}

TEST(Pickle, ReadsPlainValues) {
  auto integer = [](std::string_view operations) {
    Pickle p = read(pickled(operations));
    return p.integer(p.root(), "it");
  };
  EXPECT_EQ(integer("K\xff"), 255);
  EXPECT_EQ(integer("M\x01\x80"), 0x8001);
  EXPECT_EQ(integer("J\xff\xff\xff\xff"sv), -1);
  EXPECT_EQ(integer("\x8a\x00"sv), 0);
  EXPECT_EQ(integer("\x8a\x01\x80"), -128);
  EXPECT_EQ(integer("\x8a\x02\x80\x00"sv), 128);
  // 60 bits are kept in place, more aside.
  EXPECT_EQ(integer("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"sv), INT64_MAX);
  EXPECT_EQ(integer("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"sv), INT64_MIN);
  EXPECT_EQ(integer("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x07"sv), (int64_t{1} << 59) - 1);
  EXPECT_EQ(integer("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x08"sv), int64_t{1} << 59);
  Pickle number = read(pickled("G\x3f\xb9\x99\x99\x99\x99\x99\x9a"sv));
  EXPECT_EQ(number.number(number.root(), "it"), 0.1);
  EXPECT_TRUE(read(pickled("N")).root().is(Kind::kNone));
  Pickle truth = read(pickled("\x88"));
  EXPECT_TRUE(truth.truth(truth.root(), "it"));
  Pickle lie = read(pickled("\x89"));
  EXPECT_FALSE(lie.truth(lie.root(), "it"));
  Pickle text = read(pickled(short_text("abc")));
  EXPECT_EQ(text.text(text.root(), "it"), "abc");
  Pickle empty = read(pickled(short_text("")));
  EXPECT_EQ(empty.text(empty.root(), "it"), "");
}

TEST(Pickle, ValuesSurviveTheirBytesAndMoves) {
  auto kept = [] {
    std::string bytes = pickled(short_text("a text that is longer than a small string"));
    return read(bytes);
  }();
  Pickle moved = std::move(kept);
  EXPECT_EQ(moved.text(moved.root(), "it"), "a text that is longer than a small string");
}

TEST(Pickle, ReadsContainersThatGrow) {
  // One list: an item alone, three at once, none at once, and itself.
  Pickle p =
      read(pickled("]\x94K\x01"
                   "a(K\x02K\x03K\x04"
                   "e(eh\x00"
                   "a"sv));
  auto items = p.items(p.root(), "a list");
  ASSERT_EQ(items.size(), 5u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(p.integer(items[static_cast<size_t>(i)], "it"), i + 1);
  EXPECT_EQ(items[4], p.root());

  Pickle d = read(pickled(
      cat("}", short_text("a"), "K\x01s(", short_text("b"), "K\x02", short_text("a"), "K\x03u")));
  EXPECT_EQ(d.pairs(d.root(), "a dict").size(), 6u);
  EXPECT_EQ(d.integer(*d.find(d.root(), "a"), "it"), 3) << "as in Python the last one counts";
  EXPECT_FALSE(d.find(d.root(), "c"));

  Pickle s = read(pickled("\x8f(K\x01K\x02\x90"));
  EXPECT_EQ(s.items(s.root(), "a set").size(), 2u);
  Pickle t = read(pickled("(K\x01)K\x02\x86K\x03t"));
  EXPECT_EQ(t.items(t.items(t.root(), "it")[1], "it").size(), 2u);
}

TEST(Pickle, ObjectsAreWhatTheyAreMadeOf) {
  Pickle p = read(pickled(cat("ca\nClass\n)\x81}", short_text("x"), "K\x07sb")));
  const PickleObject& object = p.object(p.root(), "it");
  EXPECT_EQ(p.global(object.maker, "it"), "a.Class");
  EXPECT_TRUE(p.items(object.arguments, "it").empty());
  EXPECT_EQ(p.integer(*p.find(object.state, "x"), "it"), 7);
  Pickle q = read(pickled(cat(short_text("a"), short_text("Class"), "\x93K\x02\x85\x85R")));
  EXPECT_EQ(q.items(q.object(q.root(), "it").arguments, "it").size(), 1u);
  Pickle reference = read(pickled("K\x05Q"));
  EXPECT_EQ(reference.integer(reference.reference(reference.root(), "it"), "it"), 5);
  Pickle size = read(pickled(cat(short_text("torch"), short_text("Size"), "\x93K\x02\x85\x85R")));
  EXPECT_EQ(size.integer(size.items(size.root(), "a tuple")[0], "it"), 2);
  // An ordered dict is a dict like others; its attributes are not its items.
  Pickle d = read(pickled(cat("ccollections\nOrderedDict\n)R", short_text("k"), "K\x01s}b")));
  EXPECT_EQ(d.pairs(d.root(), "a dict").size(), 2u);
}

TEST(Pickle, RefusesEveryOtherGlobalByName) {
  expect_refused("cposix\nsystem\n", "asks for the Python object 'posix.system'");
  expect_refused(cat(short_text("builtins"), short_text("eval"), "\x93"), "'builtins.eval'");
  expect_refused("ca\nclass\n", "'a.class'");
  expect_refused("ca\nClass.x\n", "'a.Class.x'");
  expect_refused("ca\n\x1b[2JClass\n", "'a.?[2JClass'");
  expect_refused("cposix\nsystem\n", "nothing of it was run");
}

TEST(Pickle, RefusesEveryOtherOperation) {
  constexpr std::string_view kKnown =
      "\x80\x95.(cR\x93"
      "b\x81\x92Qqr\x94hjX\x8c\x8dUCBJKM\x8aGN\x88\x89)t\x85\x86\x87]ae}su\x8f\x90\x91";
  for (int opcode = 0; opcode < 256; ++opcode) {
    auto c = static_cast<char>(opcode);
    if (kKnown.find(c) != kKnown.npos && c != '\x80') continue;
    expect_refused(cat(c, std::string(20, '\0')), format("has the operation 0x%02x", opcode));
  }
}

TEST(Pickle, RefusesWhatPythonWouldTripOver) {
  expect_contains(refusal(""), "it is empty");
  expect_contains(refusal("}."), "no pickle of protocol 2");
  expect_contains(refusal("\x80\x06N."), "of protocol 6");
  expect_contains(refusal("\x80\x01N."), "of protocol 1");
  expect_contains(refusal(pickled("N") + "N"), "behind the end");
  expect_refused("", "values left over");
  expect_refused("NN", "values left over");
  expect_refused("N(", "values left over");
  expect_refused("\x86", "takes a value that is not there");
  expect_refused("N(\x85", "takes a value that is not there");
  expect_refused("Nt", "takes a mark that is not there");
  expect_refused("a", "takes a value that is not there");
  expect_refused("Na", "adds to a value that is not there");
  expect_refused("](Na", "adds to a value that is not there");
  expect_refused(")Na", "adds to a tuple");
  expect_refused("]NNs", "adds to a list");
  expect_refused("}(Nu", "a key alone");
  expect_refused("N)R", "without a class");
  expect_refused("ca\nClass\nNR", "without arguments");
  expect_refused("ca\nClass\n)N\x92", "in place of the keywords of an object");
  expect_refused("ca\nClass\n)}NNs\x92", "an object with keywords");
  expect_refused("NNb", "a state to what is no object");
  expect_refused(
      "ca\nClass\n)\x81NbK\x01"
      "bNb",
      "two states");
  expect_refused("ccollections\nOrderedDict\nN\x85R", "a form that is not read");
  expect_refused("h\x00"sv, "takes value 0, which it has not kept");
  expect_refused("Nq\x03h\x02", "takes value 2");
  expect_refused("Nr\xff\xff\xff\x7f", "keeps a value under the number 2147483647");
  expect_refused(cat("c", std::string(300, 'x'), "\nA\n"), "without an end");
  expect_refused("NK\x01\x93", "in place of the name of a global");
  expect_refused("\x95\x00\x00\x00\x00\x00\x00\x00\x01"sv, "cut short");
}

// No length is believed: what claims more than there is ends before anything is allocated.
TEST(Pickle, RefusesLengthsBeyondItsEnd) {
  for (std::string_view operation :
       {"X\xff\xff\xff\xff"sv, "B\xff\xff\xff\xff"sv, "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"sv,
        std::string_view("\x8c\xff"), std::string_view("\x8a\xff"), std::string_view("C\xff"),
        std::string_view("U\xff")})
    expect_refused(operation, "in the middle of an operation");
}

TEST(Pickle, EveryTruncationIsNoticed) {
  std::string whole =
      pickled(cat("ca\nClass\n)\x81}(", short_text("x"), "G\x3f\xb9\x99\x99\x99\x99\x99\x9a",
                  short_text("y"), "M\x01\x02r\x01", std::string(3, '\0'), "ub"));
  read(whole);
  for (size_t length = 0; length < whole.size(); ++length) refusal(whole.substr(0, length));
}

TEST(Pickle, AMillionNestedTuplesAreAsGoodAsOne) {
  constexpr int kDepth = 1'000'000;
  Pickle p = read(pickled(cat("N", std::string(kDepth, '\x85'))));
  PickleValue v = p.root();
  for (int i = 0; i < kDepth; ++i) v = p.items(v, "a tuple")[0];
  EXPECT_TRUE(v.is(Kind::kNone));
}

TEST(Pickle, MemoryFollowsFromItsLength) {
  expect_refused(cat("N", std::string(8'000'000, '\x85')), "take far more memory than its 8000004");
}

TEST(Pickle, SaysWhatShouldHaveBeenThere) {
  Pickle p = read(pickled("N"));
  auto expect_named = [&](auto&& action, const char* what) {
    expect_contains(user_error(action), cat("there is None in place of ", what));
  };
  expect_named([&] { p.integer(p.root(), "a size"); }, "a size");
  expect_named([&] { p.number(p.root(), "a rate"); }, "a rate");
  expect_named([&] { p.truth(p.root(), "a truth"); }, "a truth");
  expect_named([&] { p.text(p.root(), "a name"); }, "a name");
  expect_named([&] { p.items(p.root(), "a list"); }, "a list");
  expect_named([&] { p.pairs(p.root(), "a dict"); }, "a dict");
  expect_named([&] { p.global(p.root(), "a class"); }, "a class");
  expect_named([&] { p.object(p.root(), "an object"); }, "an object");
  expect_named([&] { p.reference(p.root(), "a storage"); }, "a storage");
  Pickle wide = read(pickled(cat("\x8a\x09", std::string(9, '\1'))));
  expect_contains(user_error([&] { wide.integer(wide.root(), "a size"); }),
                  "a size has more than 64 bits");
}

TEST(Pickle, HearsOfInterruptionsAndTellsOfItsProgress) {
  std::string bytes = pickled(cat("(", std::string(100'000, 'N'), "t"));
  size_t last = 0;
  read(bytes, [&](size_t done) {
    EXPECT_GT(done, last);
    last = done;
  });
  EXPECT_GT(last, 90'000u);
  EXPECT_LE(last, bytes.size());
  request_interruption();
  EXPECT_THROW(read(bytes), Interrupted);
  clear_interruption();
}

}  // namespace
}  // namespace tessera
