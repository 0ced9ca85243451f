/* resample_vectors.h - the sums of uint8 by vectors of 256 bits, for resample.c, which includes this once for each kind
 * of processor: VECTORS_TARGET, what the compiler may use; VECTORS(name), the functions' names; VECTORS_ROWS, an even
 * number of rows whose sums there are registers for; VECTORS_DOT(sums, a, b), sums of 32 bits with the products of two
 * pairs of 16 bits added to each. All give the same bits. */
VECTORS_TARGET SIMD_INLINE __m256i VECTORS(two)(const void *lower, const void *upper) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(lower)), _mm_loadu_si128(upper), 1);
}

/* Sums, as whole numbers, of what the upper and the lower parts of the weights were multiplied with. */
VECTORS_TARGET SIMD_INLINE __m256i VECTORS(whole)(__m256i upper, __m256i lower) {
  const __m256i sums = _mm256_add_epi32(_mm256_slli_epi32(upper, LOW_BITS), lower);
  return _mm256_srai_epi32(_mm256_add_epi32(sums, _mm256_set1_epi32(HALF)), RESAMPLE_BITS);
}

/* The sums of two pixels, a 128-bit half for each, in each of VECTORS_ROWS rows (`row` bytes apart): of a four of
 * pixels the first two and the last two, as 16-bit numbers in pairs, times the weights' upper and lower parts, which is
 * exact. Reads LOAD bytes for every four, of the last one perhaps more than count. */
VECTORS_TARGET SIMD_INLINE void VECTORS(pair)(const int16_t *a_split, const int16_t *b_split, int64_t count,
                                              const uint8_t *a, const uint8_t *b, size_t row, __m256i *sums) {
  const __m256i first = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1)); /* of pixels 0 and 1 */
  const __m256i last =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1));
  __m256i upper[VECTORS_ROWS], lower[VECTORS_ROWS];
  for (size_t r = 0; r < VECTORS_ROWS; r++) upper[r] = lower[r] = _mm256_setzero_si256();
  for (int64_t left = count; left > 0; left -= 4, a_split += 8, b_split += 8, a += 4 * PIXEL, b += 4 * PIXEL) {
    const __m256i weights = VECTORS(two)(a_split, b_split);
    const __m256i first_upper = _mm256_shuffle_epi32(weights, 0x00), first_lower = _mm256_shuffle_epi32(weights, 0xaa);
    __m256i bytes[VECTORS_ROWS];
    for (size_t r = 0; r < VECTORS_ROWS; r++) {
      bytes[r] = VECTORS(two)(a + r * row, b + r * row);
      const __m256i here = _mm256_shuffle_epi8(bytes[r], first);
      upper[r] = VECTORS_DOT(upper[r], here, first_upper);
      lower[r] = VECTORS_DOT(lower[r], here, first_lower);
    }
    if (left <= 2) break;
    const __m256i last_upper = _mm256_shuffle_epi32(weights, 0x55), last_lower = _mm256_shuffle_epi32(weights, 0xff);
    for (size_t r = 0; r < VECTORS_ROWS; r++) {
      const __m256i there = _mm256_shuffle_epi8(bytes[r], last);
      upper[r] = VECTORS_DOT(upper[r], there, last_upper);
      lower[r] = VECTORS_DOT(lower[r], there, last_lower);
    }
  }
  for (size_t r = 0; r < VECTORS_ROWS; r++) sums[r] = VECTORS(whole)(upper[r], lower[r]);
}

/* Writes GROUP pixels of one row: three of each four bytes. */
VECTORS_TARGET SIMD_INLINE void VECTORS(put_group)(__m128i bytes, uint8_t *to) {
  bytes = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
  const int32_t end = _mm_extract_epi32(bytes, 2);
  _mm_storel_epi64((__m128i *)(void *)to, bytes);
  memcpy(to + 8, &end, sizeof end);
}

/* The output pixels i … i + GROUP - 1 of VECTORS_ROWS rows. */
VECTORS_TARGET SIMD_INLINE void VECTORS(group)(const struct resample_sums *sums, int64_t origin, int64_t i,
                                               const uint8_t *from, size_t row, uint8_t *to, size_t to_row) {
  const int64_t stride = RESAMPLE_FOURS(sums->width) * 8;
  const int16_t *split[GROUP];
  const uint8_t *first[GROUP];
  int64_t most = 0;
  for (int64_t k = 0; k < GROUP; k++) {
    split[k] = sums->split + (i + k) * stride;
    first[k] = from + (size_t)(sums->first[i + k] - origin) * PIXEL;
    if (sums->count[i + k] > most) most = sums->count[i + k];
  }
  __m256i even[VECTORS_ROWS], odd[VECTORS_ROWS];
  VECTORS(pair)(split[0], split[2], most, first[0], first[2], row, even);
  VECTORS(pair)(split[1], split[3], most, first[1], first[3], row, odd);
  for (size_t r = 0; r < VECTORS_ROWS; r += 2, to += 2 * to_row) {
    const __m256i here = _mm256_packs_epi32(even[r], odd[r]), there = _mm256_packs_epi32(even[r + 1], odd[r + 1]);
    /* The halves: pixels 0 and 1 of both rows, and 2 and 3; then one row, and the other. */
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(here, there), 0xd8);
    VECTORS(put_group)(_mm256_castsi256_si128(bytes), to + (size_t)i * PIXEL);
    VECTORS(put_group)(_mm256_extracti128_si256(bytes, 1), to + to_row + (size_t)i * PIXEL);
  }
}

/* As many rows of three channels as go without reading behind the image: returns how many. */
VECTORS_TARGET static size_t VECTORS(across_rows)(const struct resample_sums *sums, int64_t origin, size_t rows,
                                                  size_t columns, const uint8_t *from, uint8_t *to) {
  const size_t row = columns * PIXEL, to_row = (size_t)sums->n * PIXEL;
  const size_t behind = (size_t)RESAMPLE_FOURS(sums->width) * 4 * PIXEL + LOAD; /* a read may go so far */
  size_t done = 0;
  if (sums->n < GROUP) return 0;
  while (done + VECTORS_ROWS < rows && (rows - done - VECTORS_ROWS) * row >= behind) {
    for (int64_t i = 0; i < sums->n; i += GROUP) /* the last group may begin within the one before it */
      VECTORS(group)
    (sums, origin, i + GROUP <= sums->n ? i : sums->n - GROUP, from + done * row, row, to + done * to_row, to_row);
    done += VECTORS_ROWS;
  }
  return done;
}

/* LANES elements of an output row: rows in pairs, their elements side by side. */
VECTORS_TARGET SIMD_INLINE void VECTORS(lanes_down)(const int16_t *split, int64_t count, size_t row,
                                                    const uint8_t *from, uint8_t *to) {
  const __m256i zero = _mm256_setzero_si256();
  __m256i upper[4], lower[4];
  for (int32_t q = 0; q < 4; q++) upper[q] = lower[q] = zero;
  for (int64_t k = 0; k < count; k += 2) { /* behind an odd number of rows the last is taken once more, times 0 */
    const int16_t *pair = split + k / 4 * 8 + k % 4;
    int32_t high, low;
    memcpy(&high, pair, sizeof high);
    memcpy(&low, pair + 4, sizeof low);
    const uint8_t *here = from + (size_t)k * row, *there = k + 1 < count ? here + row : here;
    const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)here);
    const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)there);
    const __m256i left = _mm256_unpacklo_epi8(a, b), right = _mm256_unpackhi_epi8(a, b);
    const __m256i pairs[4] = {_mm256_unpacklo_epi8(left, zero), _mm256_unpackhi_epi8(left, zero),
                              _mm256_unpacklo_epi8(right, zero), _mm256_unpackhi_epi8(right, zero)};
    for (int32_t q = 0; q < 4; q++) {
      upper[q] = VECTORS_DOT(upper[q], pairs[q], _mm256_set1_epi32(high));
      lower[q] = VECTORS_DOT(lower[q], pairs[q], _mm256_set1_epi32(low));
    }
  }
  for (int32_t q = 0; q < 4; q++) upper[q] = VECTORS(whole)(upper[q], lower[q]);
  const __m256i bytes =
      _mm256_packus_epi16(_mm256_packs_epi32(upper[0], upper[1]), _mm256_packs_epi32(upper[2], upper[3]));
  _mm256_storeu_si256((__m256i *)(void *)to, bytes);
}

/* Rows of LANES elements or more. */
VECTORS_TARGET static void VECTORS(down_rows)(const struct resample_sums *sums, int64_t origin, size_t row,
                                              const uint8_t *from, uint8_t *to) {
  const int64_t stride = RESAMPLE_FOURS(sums->width) * 8;
  for (int64_t i = 0; i < sums->n; i++, to += row) {
    const uint8_t *first = from + (size_t)(sums->first[i] - origin) * row;
    for (size_t done = 0; done < row; done += LANES) { /* the last ones may begin within those before them */
      const size_t at = done + LANES <= row ? done : row - LANES;
      VECTORS(lanes_down)(sums->split + i * stride, sums->count[i], row, first + at, to + at);
    }
  }
}

#undef VECTORS_TARGET
#undef VECTORS
#undef VECTORS_ROWS
#undef VECTORS_DOT
