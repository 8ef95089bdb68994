#include "data/prepared_manifest.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "base/text.h"
#include "tests/base/error_expectation.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

PreparedManifest sample() {
  PreparedManifest manifest;
  manifest.fingerprint = 0xfedcba9876543210u;
  manifest.tokenizer = "bytes \"and\" \xff";
  manifest.tokenizer_fingerprint = 7;
  manifest.vocab_size = 257;
  manifest.end_of_text = 256;
  manifest.bad_lines = 3;
  manifest.sources = {{"a.jsonl", 100}, {"b.jsonl", 0}};
  manifest.shards = {{"shard-00000.bin", false, 1000, 10, 900, 2200, 1},
                     {"val/shard-00000.bin", true, 5, 5, 0, 120, ~uint64_t{0}}};
  manifest.place = {1, 20, 30, std::string("\0\xffxyz", 5)};
  return manifest;
}

// What is said of a manifest that was changed, with a hash that fits.
std::string refusal(const std::function<void(OrderedJson&)>& change) {
  OrderedJson json = OrderedJson::parse(to_json(sample()));
  json.erase("xxh3");
  change(json);
  if (json.is_object()) {
    const std::string digest = hex(hash_text(json.dump(1)));
    json["xxh3"] = digest;
  }
  return user_error([&] { parse_prepared_manifest(json.dump(1), "DIR/manifest.json"); });
}

TEST(PreparedManifest, ComesBackAsItWas) {
  PreparedManifest manifest = sample();
  manifest.tokenizer = "bytes";
  EXPECT_EQ(parse_prepared_manifest(to_json(manifest), "x"), manifest);
  manifest.more_sources = 8;
  manifest.complete = true;
  manifest.place = {};
  EXPECT_EQ(parse_prepared_manifest(to_json(manifest), "x"), manifest);
  EXPECT_EQ(to_json(manifest).find("place"), std::string::npos);
  // What is no UTF-8 is replaced.
  EXPECT_NE(parse_prepared_manifest(to_json(sample()), "x").tokenizer, sample().tokenizer);
}

TEST(PreparedManifest, AnyChangedByteIsNoticed) {
  PreparedManifest manifest = sample();
  manifest.tokenizer = "bytes";
  const std::string good = to_json(manifest);
  for (size_t i = 0; i + 2 < good.size(); ++i) {  // but for the line end
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    try {
      EXPECT_EQ(parse_prepared_manifest(bad, "x"), manifest) << "byte " << i;  // white space
    } catch (const UserError&) {
    }
    EXPECT_THROW(parse_prepared_manifest(good.substr(0, i), "x"), UserError);
  }
}

TEST(PreparedManifest, WhatCannotBeIsRefused) {
  expect_contains(refusal([](auto& json) { json["format"] = "other"; }), "of another format");
  expect_contains(refusal([](auto& json) { json["version"] = 2; }), "is of version 2, known is 1");
  for (const char* field :
       {"fingerprint", "complete", "vocab_size", "shards", "place", "sources"}) {
    expect_contains(refusal([&](auto& json) { json.erase(field); }),
                    cat("'", field, "' is missing"));
  }
  for (const char* name : {"../x.bin", "/x.bin", "train/../x.bin", "train/a/x.bin", "", ".bin/x",
                           "shard", "a/x.bin"}) {
    expect_contains(refusal([&](auto& json) { json["shards"][0]["name"] = name; }),
                    "a shard is called '");
  }
  expect_contains(
      refusal([](auto& json) { json["shards"][1]["name"] = json["shards"][0]["name"]; }),
      "'shard-00000.bin' stands twice");
  auto number = [](const char* field, const OrderedJson& value) {
    return refusal([&](auto& json) { json["shards"][0][field] = value; });
  };
  expect_contains(number("tokens", 0), "'tokens' is 0");
  expect_contains(number("tokens", -1), "'tokens' is -1");
  expect_contains(number("tokens", 1.5), "'tokens' is no number");
  expect_contains(number("tokens", ~uint64_t{0}), "'tokens' is no number");
  expect_contains(number("tokens", int64_t{1} << 62), "more tokens than there can be");
  expect_contains(number("documents", 1001), "'documents' is 1001");
  expect_contains(number("xxh3", "12"), "no hash");
  expect_contains(refusal([](auto& json) { json["end_of_text"] = 257; }), "'end_of_text' is 257");
  expect_contains(refusal([](auto& json) { json["place"]["position"] = "0g"; }), "hexadecimal");
  expect_contains(refusal([](auto& json) { json["place"]["position"] = "0"; }), "cut short");
  expect_contains(refusal([](auto& json) { json["shards"] = 1; }), "'shards' is no list");
  expect_contains(refusal([](auto& json) { json["shards"][0] = 1; }), "it is no object");
  expect_contains(refusal([](auto& json) { json = 5; }), "DIR/manifest.json' is no manifest");
  expect_contains(user_error([] { parse_prepared_manifest("", "x"); }), "it is no object");
  // A copy of it would overflow the stack.
  std::string deep = to_json(sample());
  deep.insert(deep.rfind('}'),
              cat(", \"zz\": ", std::string(400'000, '['), std::string(400'000, ']')));
  expect_contains(user_error([&] { parse_prepared_manifest(deep, "x"); }), "more than 64 levels");
}

}  // namespace
}  // namespace tessera
