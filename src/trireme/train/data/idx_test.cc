#include "trireme/train/data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <string>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::filesystem::path kData = TRIREME_DATA_FOLDER;

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : path_(std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::input);
    return error.what();
  }
  return "accepted";
}

std::string idx_error(const std::string& content) {
  const TemporaryFile file(content);
  const std::string message = message_of([&file] { const IdxFile idx(file.path()); });
  EXPECT_TRUE(message.starts_with(file.path().string())) << message;
  return message;
}

std::string text_of(const FileBytes& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

std::string compressed(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()) + 32, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

TEST(Idx, ReadsTheDigits) {
  const IdxFile images(kData / "mnist10k-train-images-idx3-ubyte.gz");
  const IdxFile labels(kData / "mnist10k-train-labels-idx1-ubyte.gz");
  EXPECT_THAT(images.shape(), ElementsAre(8000, 28, 28));
  EXPECT_THAT(labels.shape(), ElementsAre(8000));
  EXPECT_EQ(images.data().size(), 8000U * 28 * 28);
  for (const std::byte label : labels.data()) EXPECT_LT(std::to_integer<int>(label), 10);
}

TEST(Idx, ReadsUncompressedFiles) {
  using std::string_literals::operator""s;
  const TemporaryFile file(
      "\0\0\x08\x02\0\0\0\x02\0\0\0\x03"
      "abcdef"s);
  const IdxFile idx(file.path());
  EXPECT_THAT(idx.shape(), ElementsAre(2, 3));
  EXPECT_EQ(idx.data()[5], std::byte{'f'});
}

TEST(Idx, NamesWhatIsWrong) {
  using std::string_literals::operator""s;
  EXPECT_THAT(idx_error(""), HasSubstr("is not an IDX file"));
  EXPECT_THAT(idx_error("hello"), HasSubstr("is not an IDX file"));
  EXPECT_THAT(idx_error("\0\0\x0d\x01\0\0\0\x01"s + "abcd"), HasSubstr("element type 13 is not read"));
  EXPECT_THAT(idx_error("\0\0\x08\x03\0\0\0\x01"s), HasSubstr("cut short"));
  EXPECT_THAT(idx_error("\0\0\x08\x01\0\0\0\x05"s + "abc"),
              HasSubstr("need 5 bytes of data, the file has 3"));
  EXPECT_THAT(idx_error("\0\0\x08\x01\0\0\0\x02"s + "abc"),
              HasSubstr("need 2 bytes of data, the file has 3"));
  EXPECT_THAT(idx_error("\0\0\x08\x04\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"s),
              HasSubstr("more elements than can be counted"));
}

TEST(FileBytes, InflatesABook) {
  const FileBytes book(kData / "moby-dick.txt.gz");
  EXPECT_EQ(book.bytes().size(), 1'204'997U);
  EXPECT_THAT(text_of(book), HasSubstr("Call me Ishmael"));
}

TEST(FileBytes, ReadsSeveralMembersAsOne) {
  const TemporaryFile file(compressed("one ") + compressed("two"));
  EXPECT_EQ(text_of(FileBytes(file.path())), "one two");
}

TEST(FileBytes, LeavesPlainFilesAlone) {
  const TemporaryFile file("plain");
  EXPECT_EQ(text_of(FileBytes(file.path())), "plain");
}

TEST(FileBytes, RefusesTruncatedAndDamagedGzip) {
  const std::string good = compressed(std::string(1000, 'x') + "end");
  const TemporaryFile truncated(good.substr(0, good.size() / 2));
  EXPECT_THAT(message_of([&] { const FileBytes file(truncated.path()); }), HasSubstr("truncated"));
  std::string broken = good;
  broken[broken.size() - 6] = static_cast<char>(broken[broken.size() - 6] ^ 0x55);  // inside the checksum
  std::ofstream(truncated.path(), std::ios::binary) << broken;
  EXPECT_THAT(message_of([&] { const FileBytes file(truncated.path()); }), HasSubstr("damaged"));
}

TEST(FileBytes, NamesAMissingFile) {
  EXPECT_THAT(message_of([] { const FileBytes file("/nowhere/book.txt"); }), HasSubstr("/nowhere/book.txt"));
}

}  // namespace
}  // namespace trireme::train
