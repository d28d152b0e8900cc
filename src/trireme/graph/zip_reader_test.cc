#include "trireme/graph/zip_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/graph/test_archive.h"

namespace trireme::graph {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TestArchive two_entries() {
  TestArchive archive;
  archive.entries = {{"m/one", "first"}, {"m/two", std::string(1000, 'x')}};
  return archive;
}

std::string text_of(const ZipReader& zip, const std::string& name) {
  const auto bytes = zip.read(name);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void expect_refused(const std::string& bytes, const std::string& what) {
  const TestFile file(bytes);
  EXPECT_THAT([&] { ZipReader{file.path()}; },
              ThrowsMessage<Error>(AllOf(HasSubstr(file.path().string()), HasSubstr(what))));
}

// Every way in which torch or Python may lay out the same entries.
class ZipLayout : public testing::TestWithParam<std::tuple<bool, bool, bool>> {};

TEST_P(ZipLayout, IsRead) {
  auto archive = two_entries();
  std::tie(archive.descriptors, archive.zip64, archive.zip64_sizes) = GetParam();
  archive.zip64 |= archive.zip64_sizes;
  archive.comment = "a comment";
  const TestFile file(archive.bytes());
  const ZipReader zip(file.path());
  EXPECT_EQ(zip.entries().size(), 2U);
  EXPECT_TRUE(zip.contains("m/one"));
  EXPECT_EQ(text_of(zip, "m/one"), "first");
  EXPECT_EQ(text_of(zip, "m/two"), std::string(1000, 'x'));
}
INSTANTIATE_TEST_SUITE_P(All, ZipLayout, testing::Combine(testing::Bool(), testing::Bool(), testing::Bool()));

TEST(ZipReader, ReadsAnEmptyArchiveAndEmptyEntries) {
  const TestFile nothing(TestArchive{}.bytes());
  EXPECT_TRUE(ZipReader(nothing.path()).entries().empty());
  TestArchive archive;
  archive.entries = {{"empty", ""}};
  const TestFile file(archive.bytes());
  EXPECT_EQ(text_of(ZipReader(file.path()), "empty"), "");
}

TEST(ZipReader, NamesAMissingEntry) {
  const TestFile file(two_entries().bytes());
  const ZipReader zip(file.path());
  EXPECT_THAT([&] { zip.read("m/three"); }, ThrowsMessage<Error>(HasSubstr("'m/three' is missing")));
}

TEST(ZipReader, EveryTruncationIsRefused) {
  for (const bool zip64 : {true, false}) {
    auto archive = two_entries();
    archive.zip64 = zip64;
    const std::string whole = archive.bytes();
    TestFile file;
    for (size_t size = 0; size < whole.size(); ++size) {
      file.write(whole.substr(0, size));
      EXPECT_THROW(ZipReader{file.path()}, Error) << size;
    }
  }
}

TEST(ZipReader, RefusesBytesBeforeBetweenAndAfter) {
  const std::string whole = two_entries().bytes();
  expect_refused("x" + whole, "zip64");
  expect_refused(whole + "x", "not a zip archive, or truncated");
  auto plain = two_entries();
  plain.zip64 = false;
  expect_refused("x" + plain.bytes(), "bytes were inserted");
}

TEST(ZipReader, RefusesWhatIsNoZip) {
  expect_refused("", "the file is empty");
  expect_refused("short", "not a zip archive");
  expect_refused(std::string(5000, '\x50'), "not a zip archive");
  EXPECT_THROW(ZipReader{std::filesystem::temp_directory_path()}, Error);
  EXPECT_THROW(ZipReader{"/nowhere/model.pt2"}, Error);
}

TEST(ZipReader, RefusesADamagedChecksumOnlyWhenRead) {
  auto archive = two_entries();
  archive.entries[1].crc_error = 1;
  const TestFile file(archive.bytes());
  const ZipReader zip(file.path());
  EXPECT_EQ(text_of(zip, "m/one"), "first");
  EXPECT_THAT([&] { zip.read("m/two"); }, ThrowsMessage<Error>(HasSubstr("checksum")));
}

TEST(ZipReader, RefusesOverlappingAndRepeatedEntries) {
  auto archive = two_entries();
  archive.entries[1].directory_header = 0;  // both stand at the first header
  expect_refused(archive.bytes(), "overlaps");
  archive = two_entries();
  archive.entries[1].name = "m/one";
  expect_refused(archive.bytes(), "occurs twice");
}

TEST(ZipReader, RefusesEntriesThatContradictTheirHeaders) {
  auto archive = two_entries();
  archive.entries[0].directory_size = 4;
  expect_refused(archive.bytes(), "descriptor contradicts");
  archive.descriptors = false;
  expect_refused(archive.bytes(), "header contradicts");
  archive.entries[0].directory_size = 1 << 30;
  expect_refused(archive.bytes(), "lies outside");
  archive = two_entries();
  archive.entries[1].directory_header = 3;
  expect_refused(archive.bytes(), "m/two");
}

TEST(ZipReader, RefusesCompressedAndEncryptedEntries) {
  auto archive = two_entries();
  archive.entries[0].method = 8;
  expect_refused(archive.bytes(), "compressed");
  archive = two_entries();
  archive.entries[0].flags = 1;
  expect_refused(archive.bytes(), "encrypted");
}

TEST(ZipReader, NoSingleDamagedByteGoesUnnoticed) {
  auto archive = two_entries();
  archive.entries[1].data = "second";
  const std::string whole = archive.bytes();
  TestFile file;
  int accepted = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x55);
    file.write(damaged);
    try {
      const ZipReader zip(file.path());
      for (const auto& [name, entry] : zip.entries()) zip.read(name);
      // Versions, times and attributes mean nothing here; whatever was read must be right.
      EXPECT_EQ(text_of(zip, "m/one"), "first") << i;
      EXPECT_EQ(text_of(zip, "m/two"), "second") << i;
      ++accepted;
    } catch (const Error&) {
    }
  }
  EXPECT_LT(accepted, 60);
}

}  // namespace
}  // namespace trireme::graph
