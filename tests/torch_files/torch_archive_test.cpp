// Files of torch.save that PyTorch wrote (tools/goldens/torch_file_goldens.py), and damaged ones.
#include "torch_files/torch_archive.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/float16.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/torch_files/zip_content.h"
#include "torch_files/strided.h"

namespace tessera {
namespace {

using namespace std::literals;

std::string golden(const std::string& name) {
  return cat(TESSERA_SOURCE_DIR, "/tests/goldens/torch_files/", name);
}
nlohmann::json golden_json(const std::string& name) {
  return nlohmann::json::parse(read_file(golden(name)));
}

template <class T>
double element(std::span<const std::byte> bytes, size_t i) {
  T value;
  std::memcpy(static_cast<void*>(&value), bytes.data() + i * sizeof(T), sizeof(T));
  if constexpr (requires { static_cast<double>(value); }) return static_cast<double>(value);
  return static_cast<float>(value);
}

// As the golden has them: bytes of types that we do not have.
std::vector<double> numbers(const TorchTensor& tensor, std::span<const std::byte> bytes) {
  const size_t size = tensor.dtype ? tensor.element_bytes : 1;
  std::vector<double> values;
  for (size_t i = 0; i < bytes.size() / size; ++i) {
    if (!tensor.dtype) {
      values.push_back(element<uint8_t>(bytes, i));
      continue;
    }
    switch (*tensor.dtype) {
      case DType::kF64: values.push_back(element<double>(bytes, i)); break;
      case DType::kF32: values.push_back(element<float>(bytes, i)); break;
      case DType::kBF16: values.push_back(element<BF16>(bytes, i)); break;
      case DType::kF16: values.push_back(element<F16>(bytes, i)); break;
      case DType::kI64: values.push_back(static_cast<double>(element<int64_t>(bytes, i))); break;
      case DType::kI32: values.push_back(element<int32_t>(bytes, i)); break;
      case DType::kBool: values.push_back(element<uint8_t>(bytes, i)); break;
    }
  }
  return values;
}

std::string refusal(const std::string& content, Caller caller = Caller::current()) {
  return user_error([&] { TorchArchive(bytes_of(content), "here.pt"); }, caller);
}

std::string archive_of(const std::string& pickle, const std::string& storage = "",
                       const std::string& order = "little") {
  return zip_of({{"m/data.pkl", pickle}, {"m/byteorder", order}, {"m/data/0", storage}},
                {.zip64 = true});
}

TEST(TorchArchive, ReadsWhatPyTorchWrote) {
  const nlohmann::json expected = golden_json("plain.json");
  for (const char* file : {"plain.pt", "protocol5.pt"}) {
    TorchFile torch_file(golden(file));
    const TorchArchive& archive = torch_file.archive();
    EXPECT_EQ(archive.tensors().size(), expected.size());
    for (const auto& [name, about] : expected.items()) {
      const TorchTensor* tensor = archive.find(name);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(tensor->element_type, about["dtype"].get<std::string>()) << name;
      EXPECT_EQ(tensor->shape, about["shape"].get<Shape>()) << name;
      EXPECT_EQ(tensor->strides, about["stride"].get<Shape>()) << name;
      const int64_t count = num_elements(tensor->shape);
      std::vector<std::byte> bytes(static_cast<size_t>(count) * tensor->element_bytes);
      archive.read(*tensor, 0, bytes);
      EXPECT_EQ(numbers(*tensor, bytes), about["values"].get<std::vector<double>>()) << name;
      if (count < 3) continue;
      std::vector<std::byte> part(2 * tensor->element_bytes);
      archive.read(*tensor, 1, part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(),
                             bytes.begin() + static_cast<ptrdiff_t>(tensor->element_bytes)))
          << name;
    }
    EXPECT_EQ(archive.find("f32")->offset, archive.find("permuted")->offset) << "one storage";
    EXPECT_FALSE(archive.find("u16")->dtype);
    EXPECT_EQ(archive.find("step"), nullptr) << "a number is no tensor";
  }
}

TEST(TorchArchive, GivesPlainValues) {
  for (const char* file : {"plain.pt", "protocol5.pt"}) {
    TorchFile torch_file(golden(file));
    const Pickle& values = torch_file.archive().values();
    auto at = [&](const char* key) { return *values.find(values.root(), key); };
    EXPECT_EQ(values.integer(at("step"), "it"), 5);
    EXPECT_TRUE(at("wide").is(PickleKind::kLong));
    auto y = values.items(*values.find(at("deep"), "y"), "it");
    ASSERT_EQ(y.size(), 9u);
    EXPECT_EQ(values.number(y[1], "it"), 2.5);
    EXPECT_EQ(values.items(y[2], "it").size(), 2u);
    EXPECT_TRUE(y[3].is(PickleKind::kNone));
    EXPECT_TRUE(values.truth(y[4], "it"));
    EXPECT_EQ(values.text(y[5], "it"), "z");
    EXPECT_EQ(values.integer(y[6], "it"), -3);
    EXPECT_EQ(values.integer(y[7], "it"), int64_t{1} << 62);
    EXPECT_EQ(values.integer(y[8], "it"), INT64_MIN);
    EXPECT_EQ(values.integer(*values.find(at("default"), "k"), "it"), 1);
  }
}

TEST(TorchArchive, ATensorAloneHasNoName) {
  TorchFile file(golden("tensor.pt"));
  ASSERT_EQ(file.archive().tensors().size(), 1u);
  const TorchTensor* tensor = file.archive().find("");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (Shape{3, 4}));
  EXPECT_EQ(element<float>(file.archive().stored(*tensor), 0), 12);
}

TEST(TorchArchive, RefusesWhatWouldRunSomethingByItsName) {
  const nlohmann::json refused = golden_json("hostile/refused.json");
  for (const auto& [file, words] : refused.items()) {
    std::string message = user_error([&] { TorchFile(golden(cat("hostile/", file))); });
    expect_contains(message, cat("hostile/", file));
    expect_contains(message, words.get<std::string>());
  }
}

TEST(TorchArchive, SaysHowToSaveAnOldFileAgain) {
  std::string message = user_error([&] { TorchFile(golden("before_1_6.bin")); });
  expect_contains(message, "before_1_6.bin' has the form that torch.save wrote before PyTorch 1.6");
  expect_contains(message, "torch.save(torch.load(FILE, map_location='cpu', weights_only=True)");
  EXPECT_TRUE(looks_like_torch_file(bytes_of(read_file(golden("before_1_6.bin")))));
  EXPECT_TRUE(looks_like_torch_file(bytes_of(read_file(golden("plain.pt")))));
  EXPECT_FALSE(looks_like_torch_file(bytes_of("{\"a\": 1}")));
}

TEST(TorchArchive, RefusesOtherFiles) {
  expect_contains(refusal(""), "'here.pt' is no file of torch.save");
  expect_contains(refusal("version https://git-lfs"), "is no file of torch.save");
  expect_contains(refusal(zip_of({{"a", "b"}})), "is a zip archive, but not of torch.save");
  expect_contains(refusal(zip_of({{"a/data.pkl", ""}, {"b/data.pkl", ""}})), "two files data.pkl");
  expect_contains(refusal(archive_of("\x80\x02}.", "", "big")), "with another byte order");
}

// A tensor in m/data/0, described by its fields in the pickle's own language.
std::string with_tensor(std::string_view offset, std::string_view shape, std::string_view strides,
                        std::string_view count = "K\4", std::string_view key = "0",
                        std::string_view type = "torch\nFloatStorage", size_t bytes = 16) {
  const std::string pickle =
      cat("\x80\2}X\1", std::string(3, '\0'), "wctorch._utils\n_rebuild_tensor_v2\n((X\7",
          std::string(3, '\0'), "storagec", type, "\nX\1", std::string(3, '\0'), key, "X\3",
          std::string(3, '\0'), "cpu", count, "tQ", offset, shape, strides, "\x89}tRs.");
  return archive_of(pickle, std::string(bytes, '\0'));
}

TEST(TorchArchive, RefusesTensorsOutsideOfTheirStorage) {
  const std::string inside = with_tensor("K\1", "K\3\x85", "K\1\x85");
  TorchArchive fits(bytes_of(inside), "fits.pt");
  EXPECT_EQ(fits.tensors().size(), 1u);
  const std::string outside = "does not lie in its storage of 4 elements";
  expect_contains(refusal(with_tensor("K\2", "K\3\x85", "K\1\x85")), outside);
  expect_contains(refusal(with_tensor("K\2", "K\3\x85", "K\1\x85")),
                  "'here.pt' cannot be read: tensor 'w' of shape [3], strides [1] and offset 2");
  expect_contains(refusal(with_tensor("K\0"sv, "K\2K\2\x86", "K\3K\1\x86")), outside);
  expect_contains(refusal(with_tensor("K\5", "K\0\x85"sv, "K\1\x85")), outside);
  const std::string minus = "J\xff\xff\xff\xff";
  expect_contains(refusal(with_tensor(minus, "K\1\x85", "K\1\x85")), outside);
  expect_contains(refusal(with_tensor("K\0"sv, minus + "\x85", "K\1\x85")), outside);
  expect_contains(refusal(with_tensor("K\3", "K\2\x85", minus + "\x85")), outside);
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  expect_contains(refusal(with_tensor("K\0"sv, huge + "\x85", huge + "\x85")), outside);
  expect_contains(refusal(with_tensor(huge, "K\1\x85", "K\1\x85")), outside);
  expect_contains(refusal(with_tensor("K\0"sv, cat(huge, "K\0\x86"sv), "K\0K\0\x86"sv)), outside);
}

TEST(TorchArchive, RefusesStoragesThatDisagree) {
  auto one = [](std::string_view count, std::string_view key = "0",
                std::string_view type = "torch\nFloatStorage") {
    return refusal(with_tensor("K\0"sv, "K\1\x85", "K\1\x85", count, key, type));
  };
  expect_contains(one("K\5"), "tensor 'w' has a storage of 5 elements in 16 bytes");
  expect_contains(one("K\3"), "a storage of 3 elements in 16 bytes");
  expect_contains(one("\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"), "elements in 16 bytes");
  expect_contains(one("K\4", "1"), "has a storage that is not in the file");
  expect_contains(one("K\4", "0", "torch\nfloat32"), "has a storage of class torch.float32");
  expect_contains(one("N"), "there is None in place of the length of a storage");
  expect_contains(refusal(with_tensor("K\0"sv, "K\1\x85", ")")), "not a stride for each dim");
  expect_contains(refusal(with_tensor("K\0"sv, "N", ")")), "in place of the shape of a tensor");
}

std::string key(std::string_view name) {
  return cat("X", static_cast<char>(name.size()), std::string(3, '\0'), name);
}

// A dict that holds one of the same kind twice, by the memo, to this depth.
std::string twice(int depth) {
  if (depth == 0) return "}";
  const auto number = static_cast<char>(depth);
  return cat("}", key("a"), twice(depth - 1), "q", number, "s", key("b"), "h", number, "s");
}

TEST(TorchArchive, RefusesDictsWithoutEnd) {
  // It holds itself.
  const std::string own = cat("\x80\2}q\0"sv, key("a"), "h\0s."sv);
  expect_contains(refusal(archive_of(own)), "dicts nest deeper than 32");
  // A billion ways to the innermost.
  expect_contains(refusal(archive_of(cat("\x80\2", twice(30), "."))),
                  "its dicts hold too many values");
}

TEST(TorchArchive, EveryTruncationIsNoticed) {
  const std::string whole = read_file(golden("tensor.pt"));
  for (size_t length = 0; length < whole.size(); ++length) refusal(whole.substr(0, length));
}

// Whatever a byte is changed to, tensors lie in the file or it is refused.
TEST(TorchArchive, ChangedBytesLeadNowhereElse) {
  const std::string whole = read_file(golden("plain.pt"));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string content = whole;
    content[at] = static_cast<char>(content[at] ^ (at % 3 == 0 ? 0xff : 1 << at % 8));
    try {
      TorchArchive archive(bytes_of(content), "changed.pt");
      for (const TorchTensor& tensor : archive.tensors()) {
        ASSERT_LE(tensor.offset, content.size());
        ASSERT_LE(tensor.bytes, content.size() - tensor.offset);
      }
    } catch (const UserError&) {
    }
  }
}

}  // namespace
}  // namespace tessera
