//! The channels that a set has no more: one that retires hears what is fresh now, and another one goes on where they were
//! (C12).

use jiff::Timestamp;
use resourcesync::uri::Uri;

use crate::announce::engine::channels::Channels;
use crate::announce::ids::ChannelId;

/// Obligations of one set to the channels that it had.
#[derive(Debug, Default)]
pub struct FormerChannels {
    /// The retiring channel that hears the last words of the set.
    hearing: Option<ChannelId>,
    /// End of the last interval on a channel that was lost.
    told_until: Option<Timestamp>,
}

impl FormerChannels {
    /// Takes up what is stored.
    pub fn restore(hearing: Option<ChannelId>) -> FormerChannels {
        FormerChannels {
            hearing,
            told_until: None,
        }
    }

    /// Returns the channel that was given the last words of the set, as it is stored.
    pub fn stored(&self) -> Option<ChannelId> {
        self.hearing
    }

    /// Returns the channel that hears the last words of a set, unless another set has taken it over.
    pub fn hearing(&self, set: &Uri, channels: &Channels) -> Option<ChannelId> {
        self.hearing.filter(|id| {
            let channel = channels.get(*id);
            channel.is_some_and(|channel| channel.row.set == *set)
        })
    }

    /// Gives the last words of the set to a channel that retires.
    pub fn begin(&mut self, channel: ChannelId) {
        self.hearing = Some(channel);
    }

    /// Ends the last words. Returns false if there were none.
    pub fn end(&mut self) -> bool {
        self.hearing.take().is_some()
    }

    /// Notes that a channel was lost, on which the set was told until a time. Returns true if that one was to hear the last
    /// words.
    pub fn lose(&mut self, channel: ChannelId, until: Option<Timestamp>) -> bool {
        self.told_until = self.told_until.max(until);
        self.hearing.take_if(|id| *id == channel).is_some()
    }

    /// Returns the end of the last interval on a channel that was lost.
    pub fn told_until(&self) -> Option<Timestamp> {
        self.told_until
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use resourcesync::uri::Uri;

    use super::FormerChannels;
    use crate::announce::engine::channels::Channels;
    use crate::announce::ids::ChannelId;

    #[test]
    fn only_the_loss_of_the_channel_that_hears_ends_the_last_words() {
        let mut former = FormerChannels::default();
        assert!(!former.end());
        former.begin(ChannelId(1));
        assert!(!former.lose(ChannelId(2), None));
        assert_eq!(former.stored(), Some(ChannelId(1)));
        assert!(former.lose(ChannelId(1), None));
        assert_eq!(former.stored(), None);
        former.begin(ChannelId(3));
        assert!(former.end());
    }

    #[test]
    fn the_next_channel_goes_on_where_the_last_one_ended() {
        let at = |second| Timestamp::new(second, 0).ok();
        let mut former = FormerChannels::default();
        for (until, want) in [
            (at(5), at(5)),
            (None, at(5)),
            (at(3), at(5)),
            (at(7), at(7)),
        ] {
            former.lose(ChannelId(1), until);
            assert_eq!(former.told_until(), want);
        }
    }

    #[test]
    fn a_channel_that_is_gone_hears_nothing() {
        let set = Uri::parse("https://e.org/cl.xml").unwrap();
        let former = FormerChannels::restore(Some(ChannelId(1)));
        assert_eq!(former.hearing(&set, &Channels::default()), None);
    }
}
