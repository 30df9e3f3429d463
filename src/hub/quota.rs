//! Log lines that strangers can cause: so many of a kind are written, the others are counted and summed up.

/// Lines of one kind.
#[derive(Debug)]
pub struct LineQuota {
    most: u32,
    written: u32,
    left_out: u64,
}

impl LineQuota {
    /// `most` are written until they are summed up.
    pub fn new(most: u32) -> LineQuota {
        LineQuota {
            most,
            written: 0,
            left_out: 0,
        }
    }

    /// Whether the next line may be written.
    pub fn take(&mut self) -> bool {
        let may = self.written < self.most;
        match may {
            true => self.written += 1,
            false => self.left_out += 1,
        }
        may
    }

    /// How many were not written since the last time. As many as at first may be written again.
    pub fn sum_up(&mut self) -> u64 {
        self.written = 0;
        std::mem::take(&mut self.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_is_summed_up() {
        let mut lines = LineQuota::new(2);
        let written: Vec<bool> = (0..5).map(|_| lines.take()).collect();
        assert_eq!(written, [true, true, false, false, false]);
        assert_eq!(lines.sum_up(), 3);
        assert!(lines.take());
        assert_eq!(lines.sum_up(), 0);
    }
}
